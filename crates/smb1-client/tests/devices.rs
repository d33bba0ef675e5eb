//! The client against devices, good and hostile ones.

mod device;

use std::sync::atomic::Ordering;

use device::{CHALLENGE, Device, FILE_LEN, NUMBERED, OLD, byte_at, client, user};
use frevo_client::{Cause, Status};
use frevo_smb1::Command;
use frevo_smb1_client::limits::BRIDGE_IO_BYTES;
use frevo_smb1_client::{Settings, SigningWish};

async fn whole_file(device: Device, settings: Settings) -> frevo_client::Result<Vec<u8>> {
    let (_device, address) = device.start().await;
    let (client, server) = client(address, settings);
    let share = client.connect(server, user()).await?.share("data").await?;
    share.read("job.nc").await
}

fn expected() -> Vec<u8> {
    (0..FILE_LEN).map(byte_at).collect()
}

#[tokio::test]
async fn a_file_is_read_in_pieces_at_once() {
    // The device answers when 16 READs are there, the last of them first.
    let device = Device { reads_at_once: 16, ..Device::default() };
    let (_device, address) = device.start().await;
    let (client, server) = client(address, Settings::default());
    let share = client.connect(server, user()).await.unwrap().share("data").await.unwrap();
    let file = share.open("job.nc").await.unwrap();
    let mut piece = vec![0; usize::try_from(BRIDGE_IO_BYTES).unwrap()];
    file.read_exact_at(&mut piece, 1_000).await.unwrap();
    assert!(piece.iter().zip(1_000..).all(|(byte, at)| *byte == byte_at(at)));
    let device = Device::default();
    assert_eq!(whole_file(device, Settings::default()).await.unwrap(), expected());
}

#[tokio::test]
async fn a_device_without_the_commands_of_nt_is_read_and_cleared() {
    let device = Device { capabilities: OLD, ..Device::default() };
    let (device, address) = device.start().await;
    let (client, server) = client(address, Settings::default());
    let share = client.connect(server, user()).await.unwrap().share("data").await.unwrap();
    let file = share.open("JOB.NC").await.unwrap();
    assert_eq!(file.metadata_at_open().len(), FILE_LEN);
    let mut start = [0; 100];
    file.read_exact_at(&mut start, 250).await.unwrap();
    assert_eq!(start[..3], [250, 0, 1]);
    file.close().await.unwrap();
    assert!(device.reads.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn a_small_file_is_put_at_a_device_without_the_commands_of_nt() {
    let (device, address) = Device { capabilities: OLD, ..Device::default() }.start().await;
    let (client, server) = client(address, Settings::default());
    let share = client.connect(server, user()).await.unwrap().share("data").await.unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    share.write_dated("JOB.NC", b"G0 X0", Some(time)).await.unwrap();
    assert_eq!(*device.written.lock(), b"G0 X0");
}

/// The client asks for 64 KiB of a small file, of which the second request is behind its end.
#[tokio::test]
async fn the_end_of_a_file_is_told_in_either_way() {
    for (file_len, tells_end) in [(100, false), (100, true), (61_440, true), (0, true), (0, false)]
    {
        let device = Device { file_len, tells_end, ..Device::default() };
        let read = whole_file(device, Settings::default()).await.unwrap();
        assert_eq!(read, (0..file_len).map(byte_at).collect::<Vec<u8>>(), "{file_len} {tells_end}");
    }
}

/// A name that exists is replaced by steps of which each can be undone.
#[tokio::test]
async fn a_rename_to_a_name_that_exists_loses_no_file() {
    let named = |names: &[(&str, u32)]| {
        let names = names.iter().map(|(name, file)| ((*name).to_owned(), *file)).collect();
        Device { names: parking_lot::Mutex::new(names), ..Device::default() }
    };
    let rename = async |device: Device, from: &str, to: &str| {
        let (device, address) = device.start().await;
        let (client, server) = client(address, Settings::default());
        let share = client.connect(server, user()).await.unwrap().share("data").await.unwrap();
        let renamed = share.rename(from, to).await;
        let names = device.names.lock().clone();
        (renamed, names.into_iter().collect::<Vec<_>>())
    };
    let (renamed, names) = rename(named(&[("\\a", 1), ("\\b", 2)]), "a", "b").await;
    renamed.unwrap();
    assert_eq!(names, [(String::from("\\b"), 1)]);
    // Both names are of one file, through a link to a directory on the device.
    let (renamed, names) =
        rename(named(&[("\\real\\f", 1), ("\\link\\f", 1)]), "real/f", "link/f").await;
    assert!(renamed.is_err());
    assert_eq!(names, [(String::from("\\link\\f"), 1)]);
}

#[tokio::test]
async fn shares_are_listed_by_servers_without_remote_procedure_calls() {
    fn refuse<const STATUS: u32>(command: Command, mut answer: Vec<u8>) -> Option<Vec<u8>> {
        if command == Command::NT_CREATE_ANDX {
            // Without words and bytes.
            answer[5..9].copy_from_slice(&STATUS.to_le_bytes());
            answer[32..35].fill(0);
            answer.truncate(35);
        }
        Some(answer)
    }
    // STATUS_OBJECT_NAME_NOT_FOUND, and STATUS_ACCESS_DENIED as smbd without pipes
    let not_found: device::Change = refuse::<0xC000_0034>;
    let denied: device::Change = refuse::<0xC000_0022>;
    for (capabilities, change) in
        [(OLD, not_found), (device::NEW, not_found), (device::NEW, denied)]
    {
        let device = Device { capabilities, change, ..Device::default() };
        let (_device, address) = device.start().await;
        let (client, server) = client(address, Settings::default());
        let session = client.connect(server, user()).await.unwrap();
        let shares = session.shares().await.unwrap();
        let told: Vec<_> = shares
            .iter()
            .map(|share| (&*share.name, &*share.comment, share.is_disk, share.is_special))
            .collect();
        assert_eq!(told, [("JOBS", "Loöp", true, false), ("C$", "", true, true)]);
    }
}

#[tokio::test]
async fn no_password_is_sent_in_plain_text_unless_the_user_says_so() {
    let plain = || Device { security_mode: 0x01, capabilities: OLD, ..Device::default() };
    let (device, address) = plain().start().await;
    let (client_, server) = client(address, Settings::default());
    let refused = client_.connect(server, user()).await.err().unwrap();
    assert!(refused.to_string().contains("--weak-logon"), "{refused}");
    assert!(device.passwords.lock().is_empty());
    let (device, address) = plain().start().await;
    let weak = Settings { weak_logon: true, ..Settings::default() };
    let (client_, server) = client(address, weak);
    client_.connect(server, user()).await.unwrap();
    assert_eq!(*device.passwords.lock(), [b"secret\0".to_vec()]);
}

#[tokio::test]
async fn responses_are_of_ntlm_version_2_unless_the_user_says_so() {
    for (weak_logon, least, most) in [(false, 24 + 44, 200), (true, 48, 48)] {
        let (device, address) = Device::default().start().await;
        let (client_, server) = client(address, Settings { weak_logon, ..Settings::default() });
        client_.connect(server, user()).await.unwrap();
        let lengths: Vec<usize> = device.passwords.lock().iter().map(Vec::len).collect();
        assert!(lengths.len() == 1 && (least..=most).contains(&lengths[0]), "{lengths:?}");
    }
}

#[tokio::test]
async fn a_guest_is_refused_unless_the_user_says_so() {
    let guests = || Device { guest: true, ..Device::default() };
    let refused = whole_file(guests(), Settings::default()).await.unwrap_err();
    assert_eq!(refused.status(), Some(Status::LOGON_FAILURE));
    let settings = Settings { guest: true, ..Settings::default() };
    assert_eq!(whole_file(guests(), settings).await.unwrap(), expected());
}

#[tokio::test]
async fn a_device_that_offers_signatures_must_sign() {
    for (mode, signing, is_refused) in [
        (0x07, SigningWish::WhenOffered, true),
        (0x07, SigningWish::WhenRequired, false),
        (0x0F, SigningWish::WhenRequired, true),
        (CHALLENGE, SigningWish::WhenOffered, false),
    ] {
        // This device never signs.
        let device = Device { security_mode: mode, ..Device::default() };
        let read = whole_file(device, Settings { signing, ..Settings::default() }).await;
        let status = read.err().map(|error| error.status());
        let expected = is_refused.then_some(Some(Status::ACCESS_DENIED));
        assert_eq!(status, expected, "{mode:#x} {signing:?}");
    }
}

/// Each fault ends the connection: the call fails, and nothing of the answer is used.
#[tokio::test]
async fn answers_that_break_the_protocol_end_the_connection() {
    let changes: [(&str, device::Change); 6] = [
        ("another number", |command, mut answer| {
            if command == Command::READ_ANDX {
                answer[30] ^= 0x55;
            }
            Some(answer)
        }),
        ("another command", |command, mut answer| {
            if command == Command::READ_ANDX {
                answer[4] = Command::WRITE_ANDX.0;
            }
            Some(answer)
        }),
        ("more than was asked for", |command, mut answer| {
            if command == Command::READ_ANDX {
                // DataLengthHigh
                answer[33 + 14] = 1;
            }
            Some(answer)
        }),
        ("data outside of the message", |command, mut answer| {
            if command == Command::READ_ANDX {
                answer[33 + 12] = 0xFF;
                answer[33 + 13] = 0xFF;
            }
            Some(answer)
        }),
        ("words beyond the end", |command, mut answer| {
            if command == Command::READ_ANDX {
                answer.truncate(50);
            }
            Some(answer)
        }),
        ("no SMB1 at all", |command, mut answer| {
            if command == Command::READ_ANDX {
                answer[0] = 0xFE;
            }
            Some(answer)
        }),
    ];
    for (why, change) in changes {
        let device = Device { change, ..Device::default() };
        let error = whole_file(device, Settings::default()).await.expect_err(why);
        assert!(error.status().is_none(), "{why}: {error}");
    }
}

#[tokio::test]
async fn a_file_is_read_on_after_its_connection_was_lost() {
    let lost = |file_stays| Device {
        capabilities: NUMBERED,
        cut_after: 30,
        file_stays,
        ..Device::default()
    };
    assert_eq!(whole_file(lost(true), Settings::default()).await.unwrap(), expected());
    // Another file has the name by then: the beginning of the one is not joined with the end of the other.
    let refused = whole_file(lost(false), Settings::default()).await.unwrap_err();
    assert!(matches!(refused.cause(), Cause::HandleLost), "{refused}");
}

#[tokio::test]
async fn a_server_of_smb_2_alone_is_told_apart() {
    // It ends a connection that begins with SMB1.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            drop(accepted)
        }
    });
    let (client_, server) = client(address, Settings::default());
    let refused = client_.connect(server, user()).await.err().unwrap();
    assert!(matches!(refused.cause(), Cause::Transport(_)), "{refused}");
}
