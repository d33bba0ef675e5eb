//! One name, wanted from two cores: L6, and looking before acting.

use std::time::Duration;

use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::{AccessMask, Guid};
use frevo_wire::fscc::FileInfoClass;

use super::cores::{Cores, runs};
use crate::client::files::{file_id, rename_draft};
use crate::client::*;

/// No core stalls: a longer wait is a deadlock.
async fn soon<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), answer).await.expect("within five seconds")
}

/// Both replace the other's name by a link, both rename over the other.
#[test]
fn l6_replacing_from_two_sides_ends() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        let (mut one, mount) = cores.session(0, Guid([1; 16])).await;
        let (mut two, there) = cores.session(1, Guid([2; 16])).await;
        for run in 0..runs(150) {
            let want = |name: &str| {
                let access = AccessMask::READ_DATA | AccessMask::WRITE_DATA | AccessMask::DELETE;
                Want::file(name).access(access).options(CreateOptions::DELETE_ON_CLOSE)
            };
            let a = soon(one.open_file(&mount, &want("aaaa"))).await;
            let b = soon(two.open_file(&there, &want("bbbb"))).await;
            let class = if run % 2 == 0 { FileInfoClass::LINK } else { FileInfoClass::RENAME };
            let to_b = one
                .send(vec![mount.put(rename_draft(class, a, "bbbb", true))], mount.via())
                .await[0];
            let to_a = two
                .send(vec![there.put(rename_draft(class, b, "aaaa", true))], there.via())
                .await[0];
            for reply in [soon(one.final_reply(to_b)).await, soon(two.final_reply(to_a)).await] {
                // The rename fails if the other client has the file open, and succeeds otherwise.
                assert!(
                    matches!(
                        reply.status(),
                        Status::ACCESS_DENIED | Status::SHARING_VIOLATION | Status::SUCCESS
                    ),
                    "{:?}",
                    reply.status()
                );
            }
            soon(one.close(&mount, a)).await;
            soon(two.close(&there, b)).await;
        }
        drop((one, two));
        cores.stop();
    });
}

/// A file that is open is never replaced, however close its CREATE comes to the
/// rename: either the rename is refused, or the CREATE finds what took its place.
#[test]
fn a_create_and_a_rename_over_it_do_not_cross() {
    in_world(async |world| {
        let cores = Cores::start(&world.embedded, 2);
        let (mut one, mount) = cores.session(0, Guid([1; 16])).await;
        let (mut two, there) = cores.session(1, Guid([2; 16])).await;
        let (mut refused, mut replaced) = (0, 0);
        for run in 0..runs(300) {
            world.file("target", "old");
            world.file("s", "new");
            let access = AccessMask::READ_DATA | AccessMask::DELETE;
            let source = Want::existing("s").access(access);
            let source = two.open_file(&there, &source).await;
            let create = mount.put(Want::existing("target").draft());
            let over = there.put(rename_draft(FileInfoClass::RENAME, source, "target", true));
            let (create, over) = if run % 2 == 0 {
                let create = one.send(vec![create], mount.via()).await[0];
                (create, two.send(vec![over], there.via()).await[0])
            } else {
                let over = two.send(vec![over], there.via()).await[0];
                (one.send(vec![create], mount.via()).await[0], over)
            };
            let opened = soon(one.final_reply(create)).await;
            let over = soon(two.final_reply(over)).await;
            let content = (opened.status() == Status::SUCCESS).then(|| file_id(&opened));
            if over.status() == Status::SUCCESS {
                replaced += 1;
            } else {
                refused += 1;
            }
            if let Some(file) = content {
                // The file that was opened must be the one that has the name now.
                let open = one.read(&mount, file, 0, 16).await;
                assert_eq!(open, world.content("target"), "run {run}");
                one.close(&mount, file).await;
            }
            two.close(&there, source).await;
            let _ = std::fs::remove_file(world.path("s"));
            let _ = std::fs::remove_file(world.path("target"));
        }
        assert!(refused > 0 && replaced > 0, "{refused} refused, {replaced} replaced");
        drop((one, two));
        cores.stop();
    });
}
