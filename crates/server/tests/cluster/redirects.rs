//! Clients that are sent to the owner of a share: MS-SMB2 3.3.5.7, 2.2.2.2.2.

use std::net::SocketAddr;
use std::time::Duration;

use crate::client::*;
use crate::nodes::*;
use frevo_wire::command::tree_connect::TreeConnectFlags as Flags;

fn addresses() -> [SocketAddr; 2] {
    ["192.0.2.2:445".parse().unwrap(), "[2001:db8::2]:445".parse().unwrap()]
}

fn ask(share: &str) -> Asking {
    Asking::of(Dialect::SMB_3_1_1, share, Flags::REDIRECT_TO_OWNER)
}

/// The body of an answer that sends a client to [`addresses`].
fn redirect(share: &str) -> Vec<u8> {
    let name = files::utf16(share);
    let mut data = Vec::new();
    let mut number = |value: u32| data.extend_from_slice(&value.to_le_bytes());
    // StructureSize, NotificationType, ResourceNameOffset, ResourceNameLength, Reserved and TargetType,
    // IPAddrCount.
    for value in [48, 3, 24 + 2 * 24, name.len() as u32, 0, 2] {
        number(value);
    }
    // MOVE_DST_IPADDR: Type, Reserved, the address in 16 bytes.
    number(1);
    number(0);
    data.extend_from_slice(&[192, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    data.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0]);
    data.extend_from_slice(&[0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    data.extend_from_slice(&name);
    let length = data.len() as u32;
    let mut body = vec![9, 0, 1, 0];
    body.extend_from_slice(&(length + 8).to_le_bytes());
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(b"SRdr");
    body.extend_from_slice(&data);
    body
}

#[test]
fn a_client_is_sent_to_the_owner() {
    cluster(async |cluster| {
        let node = cluster.n1();
        let nowhere = (Status::BAD_NETWORK_NAME, NO_DATA.to_vec());
        assert_eq!(ask("plain").answer(&node).await, nowhere, "nobody owns it yet");
        node.embedded.set_share_owner(&NAS, &addresses());
        for share in ["plain", "lasting", "PLAIN"] {
            let name = share.to_lowercase();
            let sent = (Status::BAD_NETWORK_NAME, redirect(&name));
            assert_eq!(ask(share).answer(&node).await, sent, "{share}");
        }
        // A share with addresses is found behind these, and one of this server alone is here.
        assert_eq!(ask("moving").answer(&node).await, nowhere);
        assert_eq!(ask("own").status(&node).await, Status::SUCCESS);
        // Clients that do not understand it get the error alone.
        for dialect in DIALECTS {
            let without = Asking::of(dialect, "plain", Flags::EMPTY);
            assert_eq!(without.answer(&node).await, nowhere, "{dialect:?}");
            if dialect != Dialect::SMB_3_1_1 {
                // MS-SMB2 2.2.9: the field is reserved, and ignored.
                let reserved = Asking::of(dialect, "plain", Flags::REDIRECT_TO_OWNER);
                assert_eq!(reserved.answer(&node).await, nowhere, "{dialect:?}");
            }
        }
        // The share has no owner any more.
        node.embedded.set_share_owner(&["plain"], &[]);
        assert_eq!(ask("plain").answer(&node).await, nowhere);
    });
}

/// The share's name and its owner are told to nobody who may not use the share.
#[test]
fn nobody_else_learns_of_the_owner() {
    cluster(async |cluster| {
        let node = cluster.n1();
        node.embedded.set_share_owner(&NAS, &addresses());
        assert_eq!(ask("anns").answer(&node).await.1, redirect("anns"));
        let bob = Asking { user: "bob", ..ask("anns") };
        assert_eq!(bob.answer(&node).await, (Status::BAD_NETWORK_NAME, NO_DATA.to_vec()));
    });
}

/// The order of MS-SMB2 3.3.5.7: the dialect, then encryption, then the owner.
#[test]
fn the_checks_have_their_order() {
    cluster(async |cluster| {
        let node = cluster.n1();
        node.embedded.set_share_owner(&NAS, &addresses());
        let mut plain = ask("sealed");
        plain.offer.ciphers.clear();
        node.embedded.set_cluster_dialect(Some(Dialect::SMB_3_0_2));
        assert_eq!(plain.status(&node).await, Status::SMB_BAD_CLUSTER_DIALECT);
        plain.flags |= Flags::CLUSTER_RECONNECT;
        assert_eq!(plain.status(&node).await, Status::ACCESS_DENIED);
        let both = Asking { flags: plain.flags, ..ask("sealed") };
        assert_eq!(both.answer(&node).await.1, redirect("sealed"));
    });
}

/// A share that is here, or has just been here.
#[test]
fn a_share_that_moves_has_its_owner() {
    cluster(async |cluster| {
        let node = cluster.n1_serving().await;
        node.embedded.set_share_owner(&NAS, &addresses());
        assert_eq!(ask("plain").status(&node).await, Status::SUCCESS, "this node serves it");
        node.embedded.drain_shares(&["plain"], Duration::from_secs(1)).await.unwrap();
        assert!(ask("plain").at(&node).await.is_none(), "it is not given away yet");
        node.embedded.leave_shares(&["plain"], &[]).await.unwrap();
        assert_eq!(ask("plain").answer(&node).await.1, redirect("plain"));
        // A client that cannot be sent finds the owner when it connects again.
        assert!(Asking::of(Dialect::SMB_3_1_1, "plain", Flags::EMPTY).at(&node).await.is_none());
        node.embedded.start_shares(&["plain"]).await.unwrap();
        assert_eq!(
            ask("plain").answer(&node).await,
            (Status::SERVER_UNAVAILABLE, NO_DATA.to_vec())
        );
    });
}

/// A client that cannot be sent comes again while its witness tells it where to go: an error would end its handles.
#[test]
fn a_client_that_cannot_be_sent_is_not_refused_at_once() {
    cluster(async |cluster| {
        let node = cluster.n1_serving().await;
        node.embedded.set_share_owner(&NAS, &addresses());
        node.embedded.drain_shares(&["plain"], Duration::from_secs(1)).await.unwrap();
        node.embedded.leave_shares(&["plain"], &addresses()).await.unwrap();
        for dialect in DIALECTS {
            let without = Asking::of(dialect, "plain", Flags::EMPTY);
            assert!(without.at(&node).await.is_none(), "{dialect:?}: it has just left");
        }
        assert_eq!(ask("plain").answer(&node).await.1, redirect("plain"));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let nowhere = (Status::BAD_NETWORK_NAME, NO_DATA.to_vec());
        let without = Asking::of(Dialect::SMB_3_1_1, "plain", Flags::EMPTY);
        assert_eq!(without.answer(&node).await, nowhere);
    });
}
