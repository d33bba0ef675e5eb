//! The Rust client crate `smb2` against the server in `SMB_*`.
//!
//! Prints a line `ok|FAIL NAME SECONDS [DETAIL]` per check; what it leaves on the
//! share, the caller compares with the server's disk.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use smb2::{SmbClient, Tree};
use std::env::var;
use std::io::Write;
use std::time::{Duration, Instant};

/// Returns the test bytes: byte `i` is `i * 7 + i / 256`.
fn pattern(size: u32) -> Vec<u8> {
    (0..size).map(|i| i.wrapping_mul(7).wrapping_add(i >> 8) as u8).collect()
}

async fn shares(client: &mut SmbClient, _: &mut Tree) -> Result<()> {
    let shares = client.list_shares().await?;
    ensure!(shares.iter().any(|s| s.name == "share"), "shares {shares:?}");
    Ok(())
}

async fn pipelined(client: &mut SmbClient, tree: &mut Tree) -> Result<()> {
    let data = pattern(9_000_001);
    client.write_file_pipelined(tree, "pipelined.bin", &data).await?;
    ensure!(client.read_file_pipelined(tree, "pipelined.bin").await? == data, "other bytes");
    Ok(())
}

async fn compound(client: &mut SmbClient, tree: &mut Tree) -> Result<()> {
    for size in [0, 1, 4096, 65_000] {
        let data = pattern(size);
        client.write_file_compound(tree, "compound.bin", &data).await?;
        let back = client.read_file_compound(tree, "compound.bin").await?;
        ensure!(back == data, "{size} bytes written, {} others read", back.len());
    }
    Ok(())
}

async fn stat(client: &mut SmbClient, tree: &mut Tree) -> Result<()> {
    client.write_file(tree, "stat.bin", &pattern(12_345)).await?;
    let info = client.stat(tree, "stat.bin").await?;
    ensure!(info.size == 12_345 && !info.is_directory, "{info:?}");
    let volume = client.fs_info(tree).await?;
    ensure!(volume.total_bytes >= volume.free_bytes && volume.free_bytes > 0, "{volume:?}");
    Ok(())
}

async fn list(client: &mut SmbClient, tree: &mut Tree) -> Result<()> {
    client.create_directory(tree, "listed").await?;
    let mut wanted: Vec<String> = (0..60).map(|i| format!("näme {i:03} 🦀")).collect();
    for name in &wanted {
        client.write_file(tree, &format!("listed/{name}"), name.as_bytes()).await?;
    }
    wanted.sort();
    let mut found: Vec<String> = client
        .list_directory(tree, "listed")
        .await?
        .into_iter()
        .map(|entry| entry.name)
        .filter(|name| name != "." && name != "..")
        .collect();
    found.sort();
    ensure!(found == wanted, "listed {} names: {found:?}", found.len());
    Ok(())
}

async fn rename_and_delete(client: &mut SmbClient, tree: &mut Tree) -> Result<()> {
    client.write_file(tree, "old.bin", &pattern(777)).await?;
    client.rename(tree, "old.bin", "renamed.bin").await?;
    ensure!(client.stat(tree, "old.bin").await.is_err(), "the old name is still there");
    ensure!(client.read_file(tree, "renamed.bin").await? == pattern(777), "other bytes");
    client.create_directory(tree, "short-lived").await?;
    client.delete_directory(tree, "short-lived").await?;
    client.write_file(tree, "short-lived.bin", b"x").await?;
    client.delete_file(tree, "short-lived.bin").await?;
    ensure!(client.stat(tree, "short-lived.bin").await.is_err(), "still there");
    Ok(())
}

async fn watch(client: &mut SmbClient, tree: &mut Tree) -> Result<()> {
    client.create_directory(tree, "watched").await?;
    let mut watcher = client.watch(tree, "watched", true).await?;
    // `next_events` sends the request for changes, so the file is written only some time after its
    // call.
    let wait = Duration::from_secs(10);
    let (events, written) =
        tokio::join!(tokio::time::timeout(wait, watcher.next_events()), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            client.write_file(tree, "watched/new.bin", b"x").await
        });
    written?;
    let events = events.context("no event")??;
    ensure!(events.iter().any(|e| e.filename.contains("new.bin")), "{events:?}");
    watcher.close().await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let address = format!("{}:{}", var("SMB_ADDR")?, var("SMB_PORT")?);
    let mut client = smb2::connect(&address, &var("SMB_USER")?, &var("SMB_PASS")?).await?;
    let mut tree = client.connect_share(&var("SMB_SHARE")?).await?;
    // A function that borrows two arguments across an await cannot be an entry of a table, so a
    // macro calls each of them.
    macro_rules! check {
        ($($name:literal => $check:ident),+ $(,)?) => {$(
            let began = Instant::now();
            let outcome = $check(&mut client, &mut tree).await;
            let seconds = began.elapsed().as_secs_f64();
            let mut out = std::io::stdout().lock();
            match outcome {
                Ok(()) => writeln!(out, "ok {} {seconds:.2}", $name)?,
                Err(error) => {
                    let error = format!("{error:#}").replace('\n', " ");
                    writeln!(out, "FAIL {} {seconds:.2} {error}", $name)?;
                }
            }
        )+};
    }
    check! {
        "list-shares" => shares,
        "pipelined" => pipelined,
        "compound" => compound,
        "stat" => stat,
        "list" => list,
        "rename-and-delete" => rename_and_delete,
        "watch" => watch,
    }
    client.disconnect_share(&tree).await?;
    Ok(())
}
