//! Calls of MS-DFSNM on the pipe of a server, by a client with the password "secret".

use frevo_client::{Client, Credentials, OpenOptions, ServerName};
use frevo_rpc::netdfs::{
    ADD, ADD_STD_ROOT, AddLink, AddStdRoot, DfsInfo, ENUM_EX, Enumeration, EnumerationReply,
    GET_INFO, GetInfo, REMOVE, REMOVE_STD_ROOT, RemoveLink, SET_INFO, SetInfo, parse_info,
};
use frevo_rpc::{Client as Association, SyntaxId, WinError};

use super::Serving;

/// Makes calls of netdfs as a user, and returns the answers.
pub fn ask(server: &Serving, user: &str, calls: &[(u16, Vec<u8>)]) -> Vec<Vec<u8>> {
    let (host, port) = server.address.rsplit_once(':').unwrap();
    let name = ServerName::new(host).at_port(port.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = Client::default().connect(name, Credentials::new(user, "secret")).await;
        let ipc = session.unwrap().share("IPC$").await.unwrap();
        let pipe = OpenOptions::new().read(true).write(true).open(&ipc, "netdfs").await.unwrap();
        let mut association = Association::new(SyntaxId::NETDFS);
        pipe.write_all_at(&association.bind(), 0).await.unwrap();
        let reply = pipe.read_bytes(0, 4_280).await.unwrap();
        assert!(association.handle_bind_reply(&reply).unwrap());
        let mut told = Vec::new();
        for (opnum, stub) in calls {
            for fragment in association.call(*opnum, stub) {
                pipe.write_all_at(&fragment, 0).await.unwrap();
            }
            let reply = loop {
                let bytes = pipe.read_bytes(0, 4_280).await.unwrap();
                if let Some(stub) = association.handle_bytes(&bytes).unwrap() {
                    break stub;
                }
            };
            told.push(reply);
        }
        pipe.close().await.unwrap();
        ipc.log_off().await;
        told
    })
}

/// Makes calls of netdfs as a user, and returns the end of each answer: its status.
pub fn call(server: &Serving, user: &str, calls: &[(u16, Vec<u8>)]) -> Vec<WinError> {
    let answers = ask(server, user, calls);
    let status = |stub: &Vec<u8>| WinError(u32::from_le_bytes(*stub.last_chunk().unwrap()));
    answers.iter().map(status).collect()
}

pub fn root(share: &str) -> (u16, Vec<u8>) {
    let root = AddStdRoot { share: share.to_owned(), comment: Some(String::new()) };
    (ADD_STD_ROOT, root.encode("box"))
}

pub fn no_root(share: &str) -> (u16, Vec<u8>) {
    let root = AddStdRoot { share: share.to_owned(), comment: None };
    (REMOVE_STD_ROOT, root.encode("box"))
}

pub fn add(path: &str, server: &str) -> (u16, Vec<u8>) {
    let request = AddLink {
        path: path.to_owned(),
        server: server.to_owned(),
        share: Some(String::from(r"data\sub")),
        comment: Some(String::from("mine")),
        flags: 0,
        has_root_list: false,
    };
    (ADD, request.encode(ADD))
}

pub fn remove(path: &str, target: Option<&str>) -> (u16, Vec<u8>) {
    let request = RemoveLink {
        path: path.to_owned(),
        server: target.map(String::from),
        share: target.map(|_| String::from(r"data\sub")),
        has_root_list: false,
    };
    (REMOVE, request.encode(REMOVE))
}

pub fn set(path: &str, level: u32, info: DfsInfo) -> (u16, Vec<u8>) {
    let (path, info) = (path.to_owned(), Some(info));
    let request = SetInfo { path, server: None, share: None, level, info, has_root_list: false };
    (SET_INFO, request.encode(SET_INFO))
}

/// The link or root at a path, as a user sees it.
pub fn info(server: &Serving, user: &str, path: &str) -> Result<DfsInfo, WinError> {
    let request = GetInfo { path: path.to_owned(), server: None, share: None, level: 6 };
    parse_info(&ask(server, user, &[(GET_INFO, request.encode())])[0], 6).unwrap()
}

/// The paths of a namespace, as a user sees them.
pub fn paths(server: &Serving, user: &str, path: &str, level: u32) -> Vec<String> {
    let path = Some(path.to_owned());
    let request = Enumeration { path, level, max_len: u32::MAX, has_info: true, resume: Some(0) };
    let reply = EnumerationReply::parse(&ask(server, user, &[(ENUM_EX, request.encode())])[0]);
    reply.unwrap().entries.unwrap().into_iter().map(|entry| entry.path).collect()
}
