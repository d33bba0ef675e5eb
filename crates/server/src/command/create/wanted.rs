//! The create contexts of a request, as far as the server has their features: MS-SMB2
//! 2.2.13.2.

use frevo_store::lease::V2;
use frevo_wire::Status;
use frevo_wire::command::ioctl::operation::OperationId;
use frevo_wire::create_context::{
    AaplQuery, AppInstanceVersion, CreateContext, DurableReconnectV2, DurableRequestV2, Lease,
    LeaseKey,
};
use frevo_wire::dtyp::{FileTime, Guid, SecurityDescriptor};
use frevo_wire::file_id::FileId;

use crate::command::request::Request;
use crate::objects::durable::{AppInstance, AskedLease};

/// An extended attribute to be set on a new file.
pub(super) struct Ea {
    /// Name.
    pub(super) name: String,
    /// Value.
    pub(super) value: Vec<u8>,
    /// FILE_NEED_EA
    pub(super) need: bool,
}

/// The create contexts of a request.
#[derive(Default)]
pub(super) struct Wanted {
    /// AlSi
    pub(super) allocation: Option<u64>,
    /// ExtA
    pub(super) eas: Vec<Ea>,
    /// SecD
    pub(super) security: Option<SecurityDescriptor>,
    /// MxAc, with the time stamp if there is one.
    pub(super) maximal_access: Option<Option<FileTime>>,
    /// TWrp
    pub(super) timewarp: Option<FileTime>,
    /// QFid
    pub(super) disk_id: bool,
    /// AAPL
    pub(super) apple: Option<AaplQuery>,
    /// RqLs
    pub(super) lease: Option<LeaseWanted>,
    /// The number of the operation that begins with the CREATE; see `operations`.
    pub(super) operation: Option<OperationId>,
    /// DHnQ, DHnC, DH2Q, DH2C, AppInstanceId
    pub(super) durable: DurableWanted,
}

/// RqLs, of either version.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseWanted {
    pub(super) lease: Lease,
    pub(super) v2: Option<V2>,
}

impl LeaseWanted {
    /// The context, if it is that.
    pub(super) fn of(context: &CreateContext<'_>) -> Option<Self> {
        match context {
            CreateContext::Lease(lease) => Some(Self { lease: *lease, v2: None }),
            CreateContext::LeaseV2(v2) => {
                let parent = v2.parent();
                Some(Self { lease: v2.lease, v2: Some(V2 { epoch: v2.epoch, parent }) })
            }
            _ => None,
        }
    }
}

/// The contexts about survival.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DurableWanted {
    /// DHnQ
    pub(super) request: bool,
    /// DHnC
    pub(super) reconnect: Option<FileId>,
    /// DH2Q
    pub(super) request_v2: Option<DurableRequestV2>,
    /// DH2C
    pub(super) reconnect_v2: Option<DurableReconnectV2>,
    /// RqLs
    pub(super) lease: Option<AskedLease>,
    pub(super) app_instance_id: Option<Guid>,
    pub(super) app_instance_version: Option<AppInstanceVersion>,
}

impl DurableWanted {
    /// Takes in a context if it is one of these.
    pub(super) fn take(&mut self, context: &CreateContext<'_>) {
        let lease = |key: LeaseKey, version| Some(AskedLease { key, version });
        match *context {
            CreateContext::DurableRequest => self.request = true,
            CreateContext::DurableReconnect(id) => self.reconnect = Some(id),
            CreateContext::DurableRequestV2(request) => self.request_v2 = Some(request),
            CreateContext::DurableReconnectV2(asked) => self.reconnect_v2 = Some(asked),
            CreateContext::AppInstanceId(id) => self.app_instance_id = Some(id),
            CreateContext::AppInstanceVersion(version) => {
                self.app_instance_version = Some(version);
            }
            CreateContext::Lease(asked) => self.lease = lease(asked.lease_key, 1),
            CreateContext::LeaseV2(asked) => self.lease = lease(asked.lease.lease_key, 2),
            _ => {}
        }
    }

    /// MS-SMB2 3.3.5.9.6, .7, .10 and .12: the two versions do not go together.
    pub(super) const fn check(&self) -> Result<(), Status> {
        let first = self.request || self.reconnect.is_some();
        let second = self.request_v2.is_some() || self.reconnect_v2.is_some();
        if (first && second) || (self.request_v2.is_some() && self.reconnect_v2.is_some()) {
            return Err(Status::INVALID_PARAMETER);
        }
        Ok(())
    }

    /// Without the contexts that a dialect below 3.0 does not have.
    pub(super) fn known_to(self, rq: &Request<'_>) -> Self {
        if rq.connection.is_smb3() {
            return self;
        }
        Self {
            request: self.request,
            reconnect: self.reconnect,
            lease: self.lease.filter(|lease| lease.version == 1),
            ..Self::default()
        }
    }

    /// True for a reconnect.
    pub(super) const fn is_reconnect(&self) -> bool {
        self.reconnect.is_some() || self.reconnect_v2.is_some()
    }

    /// MS-SMB2 3.3.5.9: the version counts in 3.1.1 alone.
    pub(super) fn app_instance(&self, rq: &Request<'_>) -> Option<AppInstance> {
        let is_3_1_1 = rq.dialect() == frevo_proto::Dialect::SMB_3_1_1;
        let version = self.app_instance_version.filter(|_| is_3_1_1);
        self.app_instance_id.map(|id| AppInstance { id, version })
    }
}
