//! Programs that are killed while the server carries out their calls.

use std::cell::Cell;
use std::process::{Child, Command};

use tokio::sync::oneshot;

use super::*;
use crate::bridge::{MadeEntry, NameIn, answered};
use crate::volume::Caller;

/// A program that was killed and not waited for: the kernel still has its thread.
fn killed_program() -> Child {
    let mut program = Command::new("sleep").arg("60").spawn().unwrap();
    program.kill().unwrap();
    program
}

#[test]
fn a_directory_of_a_killed_program_is_made_and_its_reply_taken_back() {
    in_world(async |world| {
        let one = plain(world).await;
        let mut program = killed_program();
        let made_as = Cell::new(None);
        let (go_on, gate) = oneshot::channel::<()>();
        let work = async {
            let reply = one.mkdir(ROOT, name("d"), 0o755).await?;
            made_as.set(Some(reply.attr.ino.0));
            // The server's answer arrives only after the waiting program was killed.
            gate.await.unwrap();
            let made = NameIn { parent: ROOT, name: name("d").to_owned() };
            Ok(MadeEntry { reply, made })
        };
        let answer = |told: Result<MadeEntry, Errno>| {
            assert_eq!(told.err(), Some(Errno::EINTR), "at once");
            assert!(one.nodes.find(made_as.get().unwrap()).is_ok(), "the reply is still to come");
            go_on.send(()).unwrap();
        };
        let caller = Caller::new(program.id());
        answered(Arc::clone(&one), caller, work, answer, Some(MadeEntry::undo)).await;
        program.wait().unwrap();
        // The directory exists on the server, but the kernel never received the entry. So the
        // look-up was taken back, and the node with this number does not exist any more.
        assert!(world.path("d").is_dir());
        let number = made_as.get().unwrap();
        assert_eq!(one.nodes.find(number).err(), Some(Errno::from_i32(libc::ESTALE)));
        assert_eq!(one.lookup(ROOT, name("d")).await.unwrap().found().attr.ino.0, number);
    });
}
