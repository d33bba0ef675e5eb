//! The two names of a node: MS-SRVS 3.1.6.8, 3.1.4.8, 3.1.4.10.

use crate::client::*;
use crate::nodes::*;
use frevo_rpc::srvsvc::{
    self, ShareEnum, ShareEnumReply, ShareGetInfo, ShareInfo, ShareType, parse_share_info,
};
use frevo_rpc::{Client, SyntaxId, WinError};
use frevo_wire::command::tree_connect::TreeConnectFlags;

/// Names of the server, and which shares clients see by them: those of the cluster, the node's own.
const NAMES: [(&str, bool, bool); 8] = [
    ("nas", true, false),
    ("NAS.example.com", true, false),
    ("n1", false, true),
    ("N1.example.com", false, true),
    ("192.0.2.1", true, true),
    ("files", true, true),
    ("n1x", true, true),
    ("2001-db8--1.ipv6-literal.net", true, true),
];

#[test]
fn each_name_has_its_shares() {
    cluster(async |cluster| {
        let node = cluster.n1_serving().await;
        for (name, of_cluster, own) in NAMES {
            let status = async |share: &str| {
                let path = format!("\\\\{name}\\{share}");
                let flags = TreeConnectFlags::EMPTY;
                let asking = Asking::of(Dialect::SMB_3_1_1, share, flags);
                Asking { path, ..asking }.answer(&node).await
            };
            let absent = (Status::BAD_NETWORK_NAME, NO_DATA.to_vec());
            for share in ["plain", "moving", "anns"] {
                let found = status(share).await;
                assert_eq!(found.0 == Status::SUCCESS, of_cluster, "{name} {share}");
                assert!(of_cluster || found == absent, "{name} {share}");
            }
            let found = status("own").await;
            assert_eq!(found.0 == Status::SUCCESS, own, "{name}");
            assert!(own || found == absent, "{name}");
            assert_eq!(status("IPC$").await.0, Status::SUCCESS, "{name}");
        }
    });
}

/// A share that is not in the scope of its name is not one of the cluster there: no fence, no redirect.
#[test]
fn a_share_out_of_scope_does_not_exist() {
    cluster(async |cluster| {
        let node = cluster.n1();
        node.embedded.set_cluster_dialect(Some(Dialect::SMB_3_0));
        node.embedded.set_share_owner(&NAS, &["192.0.2.2:445".parse().unwrap()]);
        let flags = TreeConnectFlags::REDIRECT_TO_OWNER;
        let path = r"\\n1\plain".to_owned();
        let asking = Asking { path, ..Asking::of(Dialect::SMB_3_1_1, "plain", flags) };
        let absent = (Status::BAD_NETWORK_NAME, NO_DATA.to_vec());
        assert_eq!(asking.answer(&node).await, absent);
        let path = r"\\nas\plain".to_owned();
        let asking = Asking { path, ..asking };
        assert_eq!(asking.status(&node).await, Status::SMB_BAD_CLUSTER_DIALECT);
    });
}

/// A server without these names, as it was before.
#[test]
fn without_names_all_is_seen() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        for (name, ..) in NAMES {
            for share in ["plain", "own"] {
                let path = format!("\\\\{name}\\{share}");
                let asking = Asking::of(Dialect::SMB_3_1_1, share, TreeConnectFlags::EMPTY);
                let status = Asking { path, ..asking }.status(&node).await;
                assert_eq!(status, Status::SUCCESS, "{name} {share}");
            }
        }
    });
}

/// A call of the server service, with its answer.
struct Service {
    peer: Peer,
    mount: Mount,
    file: FileId,
    client: Client,
}

impl Service {
    async fn of(node: &Node) -> Self {
        let (mut peer, logon) = node.logged_on("ann").await;
        let mount = peer.mount(&logon, "IPC$").await;
        let file = peer.open_file(&mount, &Want::existing("srvsvc")).await;
        let mut client = Client::new(SyntaxId::SRVSVC);
        peer.write(&mount, file, 0, &client.bind()).await;
        let reply = peer.read(&mount, file, 0, 8192).await;
        assert!(client.handle_bind_reply(&reply).unwrap());
        Self { peer, mount, file, client }
    }

    async fn call(&mut self, opnum: u16, stub: &[u8]) -> Vec<u8> {
        let Self { peer, mount, file, client } = self;
        for fragment in client.call(opnum, stub) {
            peer.write(mount, *file, 0, &fragment).await;
        }
        loop {
            let bytes = peer.read(mount, *file, 0, 8192).await;
            if let Some(stub) = client.handle_bytes(&bytes).unwrap() {
                return stub;
            }
        }
    }

    async fn shares(&mut self, server: &str, opnum: u16) -> Vec<ShareInfo> {
        let request = ShareEnum { level: 1, max_len: u32::MAX, resume: None };
        let stub = self.call(opnum, &request.encode(server)).await;
        let reply = ShareEnumReply::<Vec<ShareInfo>>::parse(&stub, 1).unwrap();
        assert_eq!(reply.status, WinError::SUCCESS);
        reply.shares
    }

    async fn share(&mut self, server: &str, name: &str) -> Result<ShareInfo, WinError> {
        let stub = ShareGetInfo { name, level: 1 }.encode(server);
        parse_share_info(&self.call(srvsvc::SHARE_GET_INFO, &stub).await, 1).unwrap()
    }
}

#[test]
fn the_server_service_lists_the_shares_of_its_name() {
    cluster(async |cluster| {
        let node = cluster.n1_serving().await;
        let mut service = Service::of(&node).await;
        let of_cluster = ["anns", "lasting", "moving", "plain", "sealed", "single"];
        for (name, sees_cluster, sees_own) in NAMES {
            let mut wanted = vec!["IPC$"];
            wanted.extend(of_cluster.iter().filter(|_| sees_cluster));
            wanted.extend(["own"].iter().filter(|_| sees_own));
            wanted.sort_unstable();
            for server in [format!("\\\\{name}"), name.to_owned()] {
                let listed = service.shares(&server, srvsvc::SHARE_ENUM).await;
                let names: Vec<_> = listed.iter().map(|share| share.name.as_str()).collect();
                assert_eq!(names, wanted, "{server}");
                // MS-SRVS 3.1.4.8: the bits of shares of a cluster are zero.
                let is_disk = |share: &&ShareInfo| share.name != "IPC$";
                assert!(listed.iter().filter(is_disk).all(|s| s.kind == ShareType::DISKTREE));
            }
            let server = format!("\\\\{name}");
            let sticky = service.shares(&server, srvsvc::SHARE_ENUM_STICKY).await;
            assert_eq!(sticky.len() + 1, wanted.len(), "{name}");
            let found = service.share(&server, "plain").await;
            assert_eq!(found.is_ok(), sees_cluster, "{name}");
            assert!(sees_cluster || found == Err(WinError::NET_NAME_NOT_FOUND), "{name}");
            assert_eq!(service.share(&server, "own").await.is_ok(), sees_own, "{name}");
            assert!(service.share(&server, "ipc$").await.is_ok(), "{name}");
        }
    });
}
