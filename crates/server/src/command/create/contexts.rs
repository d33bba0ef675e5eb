//! The create contexts of a request and the answers to them: MS-SMB2 2.2.13.2,
//! 3.3.5.9.1 to 3.3.5.9.14.

use frevo_store::lease::Granted;
use frevo_store::vfs::{EaChange, Opened};
use frevo_store::{Fault, Stat};
use frevo_wire::Status;
use frevo_wire::command::create::{self, CreateOptions};
use frevo_wire::create_context::{
    CreateContext, CreateContexts, MaximalAccess, OnDiskId, ResponseContext,
};
use frevo_wire::dtyp::SecurityDescriptor;
use frevo_wire::fscc::ea::is_valid_name;

use super::creation::Create;
use super::wanted::{Ea, LeaseWanted, Wanted};
use super::{access, apple, lease};
use crate::command::set_info;
use crate::objects::open::Open;
use crate::shares::posix;

/// Reads the contexts. Those of features that this server does not have are
/// ignored, as MS-SMB2 asks.
pub(super) fn parse(request: &create::Request<'_>) -> Result<Wanted, Status> {
    if request.contexts.duplicate().is_some() {
        return Err(Status::INVALID_PARAMETER);
    }
    let mut wanted = Wanted::default();
    for context in request.contexts.requests() {
        match context.map_err(|_| Status::INVALID_PARAMETER)? {
            CreateContext::AllocationSize(bytes) => wanted.allocation = Some(bytes),
            CreateContext::ExtendedAttributes(_) if ignores_eas(request) => {
                return Err(Status::ACCESS_DENIED);
            }
            CreateContext::ExtendedAttributes(list) => wanted.eas = eas(list)?,
            CreateContext::SecurityDescriptor(bytes) => {
                let parsed = SecurityDescriptor::parse(bytes);
                wanted.security = Some(parsed.map_err(|_| Status::INVALID_PARAMETER)?);
            }
            CreateContext::QueryMaximalAccess(time) => wanted.maximal_access = Some(time),
            CreateContext::QueryOnDiskId => wanted.disk_id = true,
            CreateContext::Timewarp(time) => wanted.timewarp = Some(time),
            CreateContext::Operation(id) => wanted.operation = Some(id),
            CreateContext::Aapl(data) => wanted.apple = apple::parse(data)?,
            other => {
                wanted.lease = LeaseWanted::of(&other).or(wanted.lease);
                wanted.durable.take(&other);
            }
        }
    }
    wanted.durable.check()?;
    Ok(wanted)
}

/// MS-SMB2 2.2.13: with FILE_NO_EA_KNOWLEDGE no extended attributes are set.
const fn ignores_eas(request: &create::Request<'_>) -> bool {
    request.create_options.contains(CreateOptions::NO_EA_KNOWLEDGE)
}

/// MS-FSA 2.1.5.1.2: with FILE_NO_EA_KNOWLEDGE a file is not opened that needs its extended
/// attributes to be understood.
pub(super) fn check_knowledge(create: &Create<'_>, opened: &Opened) -> Result<(), Status> {
    let ignores = ignores_eas(create.request) && create.name.stream().is_none();
    if ignores && !opened.created && !opened.node.needed_eas().map_err(Fault::status)?.is_empty() {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(())
}

fn eas(list: &[u8]) -> Result<Vec<Ea>, Status> {
    let list = set_info::eas::entries(list)?;
    if !list.iter().all(|ea| is_valid_name(ea.name)) {
        return Err(Status::INVALID_EA_NAME);
    }
    let changes = set_info::eas::changes(&list, std::iter::empty())?;
    let own = |change: EaChange<'_>| {
        let EaChange { name, value, need } = change;
        Ea { name: name.to_owned(), value: value.to_owned(), need }
    };
    Ok(changes.into_iter().map(own).collect())
}

/// The contexts of the response.
pub(super) fn answers(
    create: &Create<'_>,
    open: &Open,
    stat: &Stat,
    granted: Granted,
) -> Result<CreateContexts<'static>, Status> {
    if create.request.contexts.is_empty() {
        return Ok(CreateContexts::EMPTY);
    }
    let mut answers = Vec::new();
    if let Some(time) = create.wanted.maximal_access {
        answers.push(ResponseContext::MaximalAccess(if time == Some(stat.changed) {
            MaximalAccess { query_status: Status::NONE_MAPPED, maximal_access: Default::default() }
        } else {
            // MS-SMB2 2.2.14.2.5: if the maximal access cannot be read, the context reports the
            // error and the CREATE still succeeds.
            match access::maximal(create, &*open.file()?.node, stat) {
                Ok(maximal_access) => {
                    MaximalAccess { query_status: Status::SUCCESS, maximal_access }
                }
                Err(query_status) => {
                    MaximalAccess { query_status, maximal_access: Default::default() }
                }
            }
        }));
    }
    if create.wanted.disk_id {
        answers.push(ResponseContext::OnDiskId(OnDiskId {
            disk_file_id: if open.file()?.apple { 0 } else { stat.id },
            volume_id: u64::from(create.vfs.volume().serial),
        }));
    }
    answers.extend(lease::answer(create.wish, granted));
    let tree = create.rq.tree()?;
    let model = &create.rq.connection.settings.model;
    let apples = create.wanted.apple.as_ref().map(|q| apple::answer(q, &tree.share, model));
    if let Some(bytes) = &apples {
        answers.push(ResponseContext::Aapl(bytes));
    }
    let sids = posix::sids(stat);
    if create.posix.is_some() {
        answers.push(ResponseContext::Posix(posix::create_answer(stat, &sids)));
    }
    answers.extend(create.answer_survival(open));
    Ok(CreateContexts::from_responses(&answers))
}
