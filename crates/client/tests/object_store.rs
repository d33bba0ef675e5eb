//! The conformance tests of the crate `object_store`, against a server.
#![allow(clippy::disallowed_methods, missing_docs, reason = "tests")]

mod evil;
mod world;

use std::sync::Arc;

use evil::between::Line;
use frevo_client::{Client, Credentials, Options, ServerName, SmbStore};
use object_store::path::Path;
use object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
    integration,
};
use world::{World, in_world};

async fn store(world: &World) -> SmbStore {
    SmbStore::new(world.share().await)
}

/// Names of all files in the share's top directory.
fn names(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.dir.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn objects_are_put_got_listed_and_deleted() {
    in_world(async |world| {
        integration::put_get_delete_list(&store(world).await).await;
    });
}

#[test]
fn gets_have_conditions() {
    in_world(async |world| {
        integration::get_opts(&store(world).await).await;
    });
}

#[test]
fn puts_have_conditions_and_updates_lose_no_count() {
    in_world(async |world| {
        integration::put_opts(&store(world).await, true).await;
    });
}

#[test]
fn attributes_are_refused() {
    in_world(async |world| {
        integration::put_get_attributes(&store(world).await).await;
    });
}

#[test]
fn listings_have_delimiters_and_offsets() {
    in_world(async |world| {
        let store = store(world).await;
        integration::list_uses_directories_correctly(&store).await;
        for name in ["foo", "foo.bar"] {
            std::fs::remove_dir_all(world.path(name)).unwrap();
        }
        integration::list_with_delimiter(&store).await;
        integration::list_with_offset_exclusivity(&store).await;
    });
}

#[test]
fn objects_are_copied_and_renamed() {
    in_world(async |world| {
        let store = store(world).await;
        integration::rename_and_copy(&store).await;
        integration::copy_if_not_exists(&store).await;
        integration::copy_rename_nonexistent_object(&store).await;
        let missing = integration::get_nonexistent_object(&store, None).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    });
}

#[test]
fn objects_are_written_in_parts() {
    in_world(async |world| {
        let store = store(world).await;
        integration::stream_get(&store).await;
        integration::multipart_out_of_order(&store).await;
        integration::multipart_race_condition(&store, true).await;
    });
}

#[test]
fn an_upload_with_a_missing_part_does_not_complete() {
    in_world(async |world| {
        let store = store(world).await;
        let location = Path::from("whole");
        let mut upload = store.put_multipart(&location).await.unwrap();
        upload.put_part("a".into()).await.unwrap();
        drop(upload.put_part("b".into()));
        upload.put_part("c".into()).await.unwrap();
        let error = upload.complete().await.unwrap_err();
        assert!(error.to_string().contains("1 part was not written"), "{error}");
        let error = store.get(&location).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
        assert!(upload.complete().await.is_err() && upload.abort().await.is_err());
        wait_until(|| names(world).is_empty()).await;
    });
}

#[test]
fn no_file_of_a_failed_or_dropped_put_stays() {
    in_world(async |world| {
        let store = store(world).await;
        let location = Path::from("a");
        store.put(&location, "one".into()).await.unwrap();
        for mode in [
            PutMode::Create,
            PutMode::Update(UpdateVersion { e_tag: Some("0-0-0".into()), version: None }),
        ] {
            store.put_opts(&location, "two".into(), mode.into()).await.unwrap_err();
        }
        store.copy_if_not_exists(&location, &location).await.unwrap_err();
        let mut upload = store.put_multipart(&location).await.unwrap();
        upload.put_part(vec![1; 100_000].into()).await.unwrap();
        drop(upload);
        wait_until(|| names(world) == ["a"]).await;
        assert_eq!(std::fs::read(world.path("a")).unwrap(), b"one");
    });
}

#[test]
fn an_object_that_is_read_can_be_replaced_and_deleted() {
    in_world(async |world| {
        let store = store(world).await;
        let location = Path::from("big");
        let old: PutPayload =
            [vec![1_u8; 150_000], vec![2; 70_000]].into_iter().map(bytes::Bytes::from).collect();
        store.put(&location, old.clone()).await.unwrap();
        let reading = store.get(&location).await.unwrap();
        store.put(&location, vec![3; 300_000].into()).await.unwrap();
        store.delete(&location).await.unwrap();
        assert_eq!(reading.bytes().await.unwrap(), bytes::Bytes::from(old));
        let missing = store.get(&location).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    });
}

#[test]
fn names_that_smb_cannot_have_come_back() {
    in_world(async |world| {
        let store = store(world).await;
        let location = Path::parse("at=10:30/who? <me>|\"*\"./end ").unwrap();
        store.put(&location, "x".into()).await.unwrap();
        let found = store.list_with_delimiter(Some(&Path::parse("at=10:30").unwrap())).await;
        assert_eq!(found.unwrap().common_prefixes.len(), 1);
        let found: Vec<_> =
            futures_util::TryStreamExt::try_collect(store.list(None)).await.unwrap();
        let found: Vec<_> = found.into_iter().map(|meta| meta.location).collect();
        assert_eq!(found, [location]);
        // Each name is refused: the first would be stored under another name, the second is used by
        // the store itself, the third is empty.
        for name in ["a\u{F022}b", "frevo-lock~0123456789abcdef", ""] {
            let refused = store.put(&Path::parse(name).unwrap(), "x".into()).await;
            assert!(matches!(refused, Err(Error::Generic { .. })), "{name:?}: {refused:?}");
        }
    });
}

#[test]
fn a_directory_is_no_object() {
    in_world(async |world| {
        let store = store(world).await;
        let (directory, inside) = (Path::from("d"), Path::from("d/x"));
        store.put(&inside, "x".into()).await.unwrap();
        let none = |error: Error| assert!(matches!(error, Error::NotFound { .. }), "{error}");
        none(store.delete(&directory).await.unwrap_err());
        none(store.rename(&directory, &Path::from("e")).await.unwrap_err());
        none(store.copy(&directory, &Path::from("e")).await.unwrap_err());
        store.put(&directory, "x".into()).await.unwrap_err();
        store.rename(&inside, &inside).await.unwrap();
        assert_eq!(store.get(&inside).await.unwrap().bytes().await.unwrap(), "x");
        assert_eq!(names(world), ["d"]);
    });
}

#[test]
fn a_put_whose_answers_are_lost_is_done_once() {
    in_world(async |world| {
        let line = Line::to(Arc::clone(&world.wire) as _);
        let client = Client::with_dialer(Options::default(), Arc::clone(&line) as _);
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("frevo"), user).await.unwrap();
        let store = SmbStore::new(session.share("data").await.unwrap());
        for round in 0..20 {
            let location = Path::from(format!("{round}"));
            let put = store.put_opts(&location, "x".into(), PutMode::Create.into());
            let cut = async {
                for _ in 0..round * 15 {
                    tokio::task::yield_now().await;
                }
                line.cut();
                line.mend();
            };
            let (put, ()) = tokio::join!(put, cut);
            put.unwrap();
        }
        wait_until(|| names(world).len() == 20).await;
    });
}

/// Waits for work that goes on in the background.
async fn wait_until(is_done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is_done() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(is_done());
}
