//! Row X8: where what cannot be read is hidden, a name that means nothing and one that
//! means something unseen are answered alike, and after as much work: the same calls to
//! the file system, counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use frevo_server::share::Share;
use frevo_store::Vfs;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::dtyp::AccessMask;

use crate::client::protection::{everyone, protect};
use crate::client::world::{Users, in_own_world, serving};
use crate::client::{Offer, Status, Want, World, settings};
use crate::impersonation::TwoUsers;
use crate::probe::Probe;

#[test]
fn x8_absent_and_hidden_take_the_same_work() {
    let probe = Arc::new(Probe::new());
    let vfs: Arc<dyn Vfs> = Arc::clone(&probe) as _;
    let share = |name: &str| Share::disk(name, Arc::clone(&vfs));
    let discreet = share("discreet").hide_unreadable(true);
    let shares = [share("data"), discreet];
    let server = serving(settings(), shares, Arc::new(Users), Arc::new(TwoUsers));
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(false, &world, async |world| {
        let (mut ann, anns) = world.session("ann", &Offer::default()).await;
        for name in ["d", "d\\e"] {
            let folder = ann.open_file(&anns, &Want::directory(name)).await;
            ann.close(&anns, folder).await;
        }
        for within in ["", "d\\", "d\\e\\"] {
            let hidden = Want::file(&format!("{within}hidden"));
            protect(&mut ann, &anns, &hidden, &everyone(AccessMask::EMPTY)).await;
        }
        for name in ["d\\e", "d", ""] {
            let folder = Want::directory(name);
            protect(&mut ann, &anns, &folder, &everyone(AccessMask::FILE_GENERIC_READ)).await;
        }
        let mut bob = world.connect();
        bob.negotiate(&Offer::default()).await;
        let logon = bob.log_on("bob").await;
        let his = bob.mount(&logon, "discreet").await;
        let mut tried = 0;
        for within in ["", "d\\", "d\\e\\"] {
            for access in [
                AccessMask::READ_DATA,
                AccessMask::READ_ATTRIBUTES,
                AccessMask::WRITE_DATA,
                AccessMask::DELETE,
                AccessMask::MAXIMUM_ALLOWED,
                AccessMask::FILE_ALL,
            ] {
                for options in [CreateOptions::EMPTY, CreateOptions::NON_DIRECTORY_FILE] {
                    for disposition in [CreateDisposition::OPEN, CreateDisposition::OVERWRITE] {
                        let mut answers: Vec<(Status, BTreeMap<&str, usize>)> = Vec::new();
                        for name in ["absent", "hidden"] {
                            let want = Want::existing(&format!("{within}{name}"))
                                .access(access)
                                .options(options)
                                .disposition(disposition);
                            probe.seen.forget();
                            let reply = bob.create(&his, &want).await;
                            answers.push((reply.status(), probe.seen.counted()));
                        }
                        let what = format!("{within} {access:?} {options:?} {disposition:?}");
                        assert_eq!(answers[0], answers[1], "{what}");
                        assert_eq!(answers[0].0, Status::OBJECT_NAME_NOT_FOUND, "{what}");
                        tried += 1;
                    }
                }
            }
        }
        assert_eq!(tried, 72);
    });
}
