//! One end of a trial: how long a break of a lease takes to reach its client.
//!
//! ```text
//! FREVO_PASSWORD=... break_trial hold HOST SHARE NAME USER CHANNELS
//! FREVO_PASSWORD=... break_trial open HOST SHARE NAME USER CHANNELS
//! ```
//!
//! Each line of the input is a trial. `hold` opens the file with a lease, prints `held`, and
//! `broken MICROSECONDS` when the lease is broken. `open` prints `asked MICROSECONDS`, opens the
//! file, which breaks the lease, and prints `closed` when it has closed it. The times are of the
//! machine's clock, so both ends run on one machine.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::io::BufRead;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frevo_client::{Client, Credentials, File, LeaseState, OpenOptions, Options, ServerName};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Time between two looks at the lease.
const LOOK: Duration = Duration::from_millis(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, host, share, name, user, channels] = &*arguments else {
        return Err("break_trial hold|open HOST SHARE NAME USER CHANNELS".into());
    };
    let options = Options::new().channels(channels.parse()?);
    let user = Credentials::new(user, &std::env::var("FREVO_PASSWORD")?);
    let session = Client::new(options).connect(ServerName::new(host), user).await?;
    let share = session.share(share).await?;
    let (lines, mut input) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() || lines.send(()).is_err() {
                return;
            }
        }
    });
    let all = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    let holds = mode == "hold";
    let lease = if holds { all } else { LeaseState::EMPTY };
    while input.recv().await.is_some() {
        let options = OpenOptions::new().read(true).write(true).create(true).lease(lease);
        if holds {
            let file = options.open(&share, name).await?;
            if file.lease() != all {
                return Err("no lease is granted".into());
            }
            println!("held");
            broken(&file, all).await?;
            file.close().await?;
        } else {
            println!("asked {}", now()?);
            options.open(&share, name).await?.close().await?;
            println!("closed");
        }
    }
    session.log_off().await;
    Ok(())
}

/// Waits until the lease is less than `all`, and prints the time.
async fn broken(file: &File, all: LeaseState) -> Outcome<()> {
    while file.lease() == all {
        tokio::time::sleep(LOOK).await;
    }
    println!("broken {}", now()?);
    Ok(())
}

fn now() -> Outcome<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())
}
