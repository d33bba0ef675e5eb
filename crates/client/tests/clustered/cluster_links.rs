//! A namespace whose links lead to shares of a cluster: a link to a share that moves stays right.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::nodes;

use std::os::unix::fs::symlink;

use frevo_client::OpenOptions;
use nodes::with_nodes_of;

#[test]
fn a_link_to_a_share_that_moves_is_gone_on_with() {
    let made = |share: frevo_server::share::Share| {
        let is_root = share.name() == "second";
        share.samba_links(is_root)
    };
    with_nodes_of(3, made, async |nodes| {
        nodes.take(0, "second").await;
        nodes.take(1, "lasting").await;
        symlink("msdfs:cluster\\lasting", nodes.path("data")).unwrap();
        let root = nodes.share("second").await;
        let new = OpenOptions::new().read(true).write(true).create_new(true);
        let file = new.open(&root, "data/file").await.unwrap();
        assert_eq!(file.share().name(), "lasting");
        file.write_all_at(b"0", 0).await.unwrap();
        // From now on no server knows the link, so that whoever asked for a referral would not come back.
        std::fs::remove_file(nodes.path("data")).unwrap();
        for (at, (from, to)) in [(1, 2), (2, 0)].into_iter().enumerate() {
            nodes.hand_over("lasting", from, to).await;
            let at = at as u64 + 1;
            file.write_all_at(at.to_string().as_bytes(), at).await.unwrap();
            assert_eq!(root.read("data/file").await.unwrap().len() as u64, at + 1);
        }
        // The node that has both shares dies.
        nodes.die(0);
        for share in ["lasting", "second"] {
            nodes.take(1, share).await;
        }
        file.write_all_at(b"3", 3).await.unwrap();
        root.write("data/other", b"more").await.unwrap();
        assert_eq!(std::fs::read(nodes.path("file")).unwrap(), b"0123");
        assert_eq!(std::fs::read(nodes.path("other")).unwrap(), b"more");
        file.close().await.unwrap();
    });
}
