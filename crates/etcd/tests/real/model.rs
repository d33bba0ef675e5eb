//! The cases on which etcd and the model of it agree: those that machines and simulators stand on.

use frevo_cluster::model::subject::EngineSubject;
use frevo_cluster::model::table::CASES;
use tokio::runtime::Handle;

use crate::support::{Cluster, one, range};

#[tokio::test]
async fn the_model_and_etcd_agree() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let runtime = Handle::current();
    // The cases wait for answers, which come in this thread.
    let cases = tokio::task::spawn_blocking(move || differences(&cluster, &runtime));
    let differences = cases.await.unwrap();
    assert!(differences.is_empty(), "{differences:#?}");
}

fn differences(cluster: &Cluster, runtime: &Handle) -> Vec<String> {
    let client = cluster.client();
    let compact = || {
        runtime.block_on(async {
            let revision = range(&client, one("any")).await.unwrap().revision;
            cluster.compact(revision).await;
        });
    };
    let mut subject = EngineSubject {
        engine: &client,
        prefix: Vec::new(),
        wait: Box::new(std::thread::sleep),
        compact: Box::new(compact),
    };
    let mut differences = Vec::new();
    for case in CASES {
        subject.prefix = format!("test/{}/", case.name).into_bytes();
        if let Err(why) = (case.run)(&mut subject) {
            differences.push(format!("{}: {why}", case.name));
        }
    }
    differences
}
