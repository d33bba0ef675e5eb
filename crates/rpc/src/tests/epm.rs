//! The endpoint mapper: towers, searches, lies about lengths.

use super::*;
use crate::FaultStatus;
use crate::epm::*;
use crate::limits::{MAX_ELEMENTS, MAX_HANDLES, MAX_TOWER};
use alloc::string::String;
use frevo_wire::dtyp::Guid;
use frevo_wire::ndr::ContextHandle;

/// A server with samr on a pipe and on a port, and lsarpc on a pipe.
struct Endpoints;

impl Mapper for Endpoints {
    fn random(&self) -> [u8; 16] {
        fixture().random()
    }

    fn registrations(&self) -> Vec<Registration> {
        let pipe = |interface: &'static Interface| Registration {
            interface,
            address: Address::Pipe {
                path: String::from(r"\PIPE\samr"),
                host: String::from(r"\\BOX"),
            },
        };
        let address = Address::Tcp { port: 49_152, host: [192, 0, 2, 1] };
        let port = Registration { interface: &crate::samr::INTERFACE, address };
        vec![pipe(&crate::samr::INTERFACE), pipe(&crate::lsarpc::INTERFACE), port]
    }
}

fn tcp(interface: SyntaxId) -> Tower {
    let address = Address::Tcp { port: 0, host: [0; 4] };
    Tower { interface, transfer: SyntaxId::NDR, address }
}

fn mapped(tower: Tower) -> MapReply {
    let stub = EptMap::new(tower, 10).encode();
    MapReply::parse(&Epm::default().call(MAP, &stub, &Endpoints).unwrap()).unwrap()
}

fn looked_up(epm: &mut Epm, asked: &EptLookup) -> LookupReply {
    LookupReply::parse(&epm.call(LOOKUP, &asked.encode(), &Endpoints).unwrap()).unwrap()
}

/// The tower by which clients ask for the port of SAMR: C706 appendix L, with the bytes of
/// appendices I and H.
#[test]
fn towers_have_the_bytes_of_the_specification() {
    let octets = hex("0500 1300 0d 78573412 3412 cdab ef000123456789ac 0100 0200 0000
         1300 0d 045d888a eb1c c911 9fe808002b104860 0200 0200 0000
         0100 0b 0200 0000 0100 07 0200 0087 0100 09 0400 c0000201");
    let tower = Tower::parse(&octets).unwrap();
    let address = Address::Tcp { port: 135, host: [192, 0, 2, 1] };
    assert_eq!(tower, Tower { address, ..tcp(SyntaxId::SAMR) });
    assert_eq!(tower.encode(), octets);
    let address = Address::Pipe { path: String::from(r"\PIPE\samr"), host: String::from("box") };
    let pipe = Tower { address, ..tcp(SyntaxId::SAMR) };
    assert_eq!(Tower::parse(&pipe.encode()), Ok(pipe.clone()));
    assert!(pipe.encode().ends_with(b"\x0b\0\\PIPE\\samr\0\x01\0\x11\x04\0box\0"));
    for cut in 0..octets.len() {
        assert!(Tower::parse(&octets[..cut]).is_err(), "{cut}");
    }
    // The tower has too few or too many floors, or a floor that is longer than the tower.
    for (at, value) in [(0, 2), (0, 7), (2, 0xFF), (3, 0xFF), (23, 0xFF), (4, 0x0C)] {
        let mut octets = octets.clone();
        octets[at] = value;
        assert!(Tower::parse(&octets).is_err(), "byte {at}");
    }
    // A tower with UDP (0x08) can be parsed, but its address counts as unknown, because only TCP
    // and pipes are served.
    let mut udp = octets;
    udp[61] = 0x08;
    assert_eq!(Tower::parse(&udp).unwrap().address, Address::Other);
}

#[test]
fn a_tower_is_mapped_to_its_port() {
    let reply = mapped(tcp(SyntaxId::SAMR));
    assert_eq!((reply.status, reply.handle), (EptStatus::OK, ContextHandle::NULL));
    let address = Address::Tcp { port: 49_152, host: [192, 0, 2, 1] };
    assert_eq!(reply.towers, [Tower { address, ..tcp(SyntaxId::SAMR) }]);
    let pipe = Address::Pipe { path: String::new(), host: String::new() };
    assert_eq!(mapped(Tower { address: pipe, ..tcp(SyntaxId::LSARPC) }).towers.len(), 1);
    let version = |version| SyntaxId { version, ..SyntaxId::SAMR };
    for tower in [
        tcp(SyntaxId::LSARPC),
        tcp(SyntaxId::SRVSVC),
        Tower { transfer: SyntaxId::NDR64, ..tcp(SyntaxId::SAMR) },
        Tower { address: Address::Other, ..tcp(SyntaxId::SAMR) },
        tcp(version(2)),
        tcp(version(0x1_0001)),
    ] {
        let reply = mapped(tower);
        assert_eq!((reply.status, reply.towers), (EptStatus::NOT_REGISTERED, vec![]));
    }
}

#[test]
fn a_search_goes_on_by_its_handle() {
    let mut epm = Epm::default();
    let mut found = Vec::new();
    let mut handle = ContextHandle::NULL;
    loop {
        let reply = looked_up(&mut epm, &EptLookup::all(handle, 2));
        assert_eq!(reply.status, EptStatus::OK);
        found.extend(reply.entries);
        handle = reply.handle;
        if handle == ContextHandle::NULL {
            break;
        }
    }
    assert_eq!(found.len(), 3);
    assert_eq!(found[2].annotation, crate::samr::INTERFACE.name);
    let of = |inquiry, interface, version| {
        let all = EptLookup::all(ContextHandle::NULL, 10);
        let asked = EptLookup { inquiry, interface: Some(interface), version, ..all };
        looked_up(&mut Epm::default(), &asked).entries.len()
    };
    let newer = SyntaxId { version: 2, ..SyntaxId::SAMR };
    let minor = SyntaxId { version: 0x1_0001, ..SyntaxId::SAMR };
    for (interface, version, count) in [
        (SyntaxId::SAMR, VersionOption::COMPATIBLE, 2),
        (newer, VersionOption::ALL, 2),
        (newer, VersionOption::COMPATIBLE, 0),
        (newer, VersionOption::UPTO, 2),
        (newer, VersionOption::EXACT, 0),
        (minor, VersionOption::MAJOR_ONLY, 2),
        (minor, VersionOption::COMPATIBLE, 0),
        (SyntaxId::WKSSVC, VersionOption::ALL, 0),
    ] {
        assert_eq!(of(Inquiry::MATCH_BY_IF, interface, version), count, "{interface:?} {version}");
    }
    // Endpoints are not registered for objects, so this search finds nothing.
    let all = EptLookup::all(ContextHandle::NULL, 10);
    let by_object =
        EptLookup { inquiry: Inquiry::MATCH_BY_OBJ, object: Some(Guid([1; 16])), ..all };
    assert_eq!(looked_up(&mut epm, &by_object).status, EptStatus::NOT_REGISTERED);
}

#[test]
fn searches_are_few() {
    let mut epm = Epm::default();
    let one = EptLookup::all(ContextHandle::NULL, 1);
    let handles: Vec<_> = (0..MAX_HANDLES).map(|_| looked_up(&mut epm, &one).handle).collect();
    assert_eq!(looked_up(&mut epm, &one).status, EptStatus::CANT_PERFORM_OP);
    // All handles are in use, but a search that continues frees the handle of its request, so it
    // succeeds.
    assert_eq!(looked_up(&mut epm, &EptLookup::all(handles[0], 1)).status, EptStatus::OK);
    let freed = epm.call(LOOKUP_HANDLE_FREE, &encode_free(&handles[1]), &Endpoints).unwrap();
    assert_eq!(parse_free_reply(&freed), Ok(EptStatus::OK));
    assert_eq!(looked_up(&mut epm, &one).status, EptStatus::OK);
    for handle in [handles[0], handles[1]] {
        let stub = EptLookup::all(handle, 1).encode();
        assert_eq!(epm.call(LOOKUP, &stub, &Endpoints), Err(FaultStatus::CONTEXT_MISMATCH));
    }
    assert_eq!(
        looked_up(&mut Epm::default(), &EptLookup::all(ContextHandle::NULL, 0)).status,
        EptStatus::CANT_PERFORM_OP
    );
}

/// The ranges of MS-RPCE 2.2.1.2: elements, and the length of a tower.
#[test]
fn arguments_out_of_range_are_faults() {
    let call = |opnum, stub: &[u8]| Epm::default().call(opnum, stub, &Endpoints);
    let most = |most| EptLookup::all(ContextHandle::NULL, most).encode();
    assert!(call(LOOKUP, &most(MAX_ELEMENTS)).is_ok());
    assert_eq!(call(LOOKUP, &most(MAX_ELEMENTS + 1)), Err(FaultStatus::NDR));
    let tower = |length: u32, count: u32| {
        let mut w = NdrWriter::new();
        w.pointer(false).pointer(true).u32(count).u32(length);
        w.fixed(&vec![0; length as usize]).handle(&ContextHandle::NULL).u32(1);
        call(MAP, &w.into_stub())
    };
    let most = MAX_TOWER as u32;
    assert!(tower(most, most).is_ok());
    assert_eq!(tower(most + 1, most + 1), Err(FaultStatus::NDR));
    assert_eq!(tower(8, 9), Err(FaultStatus::NDR));
    let stub = EptMap::new(tcp(SyntaxId::SAMR), 1).encode();
    for cut in 0..stub.len() {
        assert_eq!(call(MAP, &stub[..cut]), Err(FaultStatus::NDR), "{cut}");
    }
    for opnum in [INSERT, DELETE, MGMT_DELETE] {
        assert_eq!(call(opnum, &[]), Ok(EptStatus::CANT_PERFORM_OP.0.to_le_bytes().to_vec()));
    }
    assert_eq!(call(INQ_OBJECT, &[]), Err(FaultStatus::OP_RNG_ERROR));
}
