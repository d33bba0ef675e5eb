//! The service witness protocol, MS-SWN: a node of a cluster tells the clients of other nodes that
//! these have gone, or that a share has moved.
//!
//! [`Registrations`] is the server's table, with time as an argument. The requests encode and the
//! replies parse, too, for a client.

mod calls;
mod cluster;
mod interfaces;
mod news;
mod notification;
mod pending;
mod registrations;

pub use calls::{HandleReply, Register, RegisterEx, StatusReply};
pub use cluster::{ClusterNode, ClusterState, ClusterUnit};
pub use interfaces::{InterfaceInfo, InterfaceListReply};
pub use notification::{AddressInfo, Notification, NotifyReply, ResourceChange};
pub use registrations::{
    Asked, Interfaces, Key, Known, Registering, Registration, Registrations, Wish,
};

use crate::SyntaxId;
use crate::interface::Interface;
use crate::security::AuthLevel;
use frevo_wire::{bit_set, open_enum};

/// The interface.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::WITNESS,
    name: "Service Witness Protocol",
    // MS-SWN 2.1: clients reach it over TCP, by the endpoint mapper.
    pipes: &[],
    secondary_address: "",
    least_level: AuthLevel::NONE,
    // MS-SWN 3.1.4 note 4: Windows refuses calls that are neither signed nor sealed.
    level_on_tcp: Some(AuthLevel::INTEGRITY),
};

/// WitnessrGetInterfaceList, MS-SWN 3.1.4.1. It has no arguments.
pub const GET_INTERFACE_LIST: u16 = 0;
/// WitnessrRegister, MS-SWN 3.1.4.2.
pub const REGISTER: u16 = 1;
/// WitnessrUnRegister, MS-SWN 3.1.4.3.
pub const UN_REGISTER: u16 = 2;
/// WitnessrAsyncNotify, MS-SWN 3.1.4.4.
pub const ASYNC_NOTIFY: u16 = 3;
/// WitnessrRegisterEx, MS-SWN 3.1.4.5.
pub const REGISTER_EX: u16 = 4;
/// WitnessrUnRegisterEx, MS-SWN 3.1.4.6.
pub const UN_REGISTER_EX: u16 = 5;

open_enum! {
    /// A version of the protocol, MS-SWN 1.7.
    Version(u32) {
        /// Version 1.
        V1 = 0x0001_0001,
        /// Version 2: shares, addresses, and an end to the wait for a notification.
        V2 = 0x0002_0000,
        /// The version that the interface of an unreachable service has.
        UNKNOWN = 0xFFFF_FFFF,
    }
}

open_enum! {
    /// The state of an interface, MS-SWN 2.2.2.5.
    InterfaceState(u16) {
        /// UNKNOWN
        UNKNOWN = 0,
        /// AVAILABLE
        AVAILABLE = 1,
        /// UNAVAILABLE
        UNAVAILABLE = 0xFF,
    }
}

open_enum! {
    /// ChangeType of RESOURCE_CHANGE, MS-SWN 2.2.2.3.
    ResourceState(u32) {
        /// RESOURCE_STATE_UNKNOWN
        UNKNOWN = 0,
        /// RESOURCE_STATE_AVAILABLE
        AVAILABLE = 1,
        /// RESOURCE_STATE_UNAVAILABLE
        UNAVAILABLE = 0xFF,
    }
}

open_enum! {
    /// MessageType of RESP_ASYNC_NOTIFY, MS-SWN 2.2.2.4.
    MessageType(u32) {
        /// RESOURCE_CHANGE_NOTIFICATION
        RESOURCE_CHANGE = 1,
        /// CLIENT_MOVE_NOTIFICATION
        CLIENT_MOVE = 2,
        /// SHARE_MOVE_NOTIFICATION, version 2.
        SHARE_MOVE = 3,
        /// IP_CHANGE_NOTIFICATION, version 2.
        IP_CHANGE = 4,
    }
}

bit_set! {
    /// Flags of WITNESS_INTERFACE_INFO, MS-SWN 2.2.2.5.
    InterfaceFlags(u32) {
        /// IPV4 has an address.
        IPV4 = 1,
        /// IPV6 has an address.
        IPV6 = 2,
        /// INTERFACE_WITNESS: clients of this node may register there.
        WITNESS = 4,
    }
}

bit_set! {
    /// Flags of IPADDR_INFO, MS-SWN 2.2.2.1.
    AddressFlags(u32) {
        /// IPADDR_V4
        V4 = 1,
        /// IPADDR_V6
        V6 = 2,
        /// IPADDR_ONLINE
        ONLINE = 8,
        /// IPADDR_OFFLINE
        OFFLINE = 0x10,
    }
}

bit_set! {
    /// Flags of WitnessrRegisterEx, MS-SWN 3.1.4.5.
    RegisterFlags(u32) {
        /// WITNESS_REGISTER_IP_NOTIFICATION: the client wants to know of all addresses.
        IP_NOTIFICATION = 1,
    }
}
