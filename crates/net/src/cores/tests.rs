use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::*;

fn started(count: usize) -> Cores {
    Cores::start(&CoresConfig { count, ..CoresConfig::default() }).unwrap()
}

#[tokio::test]
async fn futures_that_cannot_travel_run_where_they_are_made() {
    let cores = started(2);
    for core in cores.handles() {
        let (index, name) = core
            .run(|| async {
                let local = Rc::new(());
                tokio::task::yield_now().await;
                drop(local);
                let name = std::thread::current().name().map(str::to_owned);
                (current().map(|core| core.index()), name)
            })
            .await
            .unwrap();
        assert_eq!(index, Some(core.index()));
        assert_eq!(name, Some(format!("core-{}", core.index())));
    }
    assert!(current().is_none());
}

#[tokio::test]
async fn a_panic_takes_one_task_only() {
    let cores = started(1);
    let core = &cores.handles()[0];
    let died = core.run(|| async { panic!("on purpose, in a test") }).await;
    assert_eq!(died, None::<()>);
    assert_eq!(core.run(|| async { 7 }).await, Some(7));
}

#[tokio::test]
async fn load_is_counted_and_dealt() {
    let cores = started(2);
    let (release, held) = oneshot::channel::<()>();
    cores.handles()[0].spawn(move || async move {
        drop(held.await);
    });
    assert_eq!(cores.least_loaded().index(), 1);
    drop(release);
    while cores.handles()[0].tasks() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(cores.least_loaded().index(), 0);
}

#[test]
fn stop_is_graceful_within_the_grace() {
    let cores = started(2);
    let wound_up = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&wound_up);
    cores.handles()[1].spawn(move || async move {
        stopping().await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        flag.store(true, Ordering::SeqCst);
    });
    let began = Instant::now();
    cores.stop(Duration::from_secs(60));
    assert!(wound_up.load(Ordering::SeqCst));
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn stop_does_not_wait_beyond_the_grace() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let cores = started(1);
    let core = cores.handles()[0].clone();
    let dropped = Arc::new(AtomicBool::new(false));
    let told = Told(Arc::clone(&dropped));
    core.spawn(move || async move {
        let _told = told;
        std::future::pending::<()>().await;
    });
    let began = Instant::now();
    cores.stop(Duration::from_millis(50));
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(dropped.load(Ordering::SeqCst), "what is left over is dropped, not leaked");
    assert!(!core.spawn(|| async {}), "a stopped core takes nothing");
    assert_eq!(core.tasks(), 0);
}

#[tokio::test]
async fn pinned_threads_run_where_they_are_told() {
    let cores = Cores::start(&CoresConfig { pin: true, ..CoresConfig::default() }).unwrap();
    let allowed = allowed_processors();
    assert_eq!(cores.handles().len(), allowed.len());
    for core in cores.handles() {
        let on = core.run(|| async { allowed_processors() }).await.unwrap();
        assert_eq!(on, [allowed[core.index()]]);
        let made = core.run(|| async {
            let thread = std::thread::spawn(|| {
                let bound = allowed_processors();
                unbind();
                (bound, allowed_processors())
            });
            thread.join().unwrap()
        });
        assert_eq!(made.await.unwrap(), (on, allowed.clone()), "a thread that a core makes");
    }
}

#[tokio::test]
async fn idle_cores_are_counted() {
    let cores = started(3);
    assert_eq!(idle(), None, "no core");
    let idle_beside = |busy: usize| {
        let (begun, all_begun) = std::sync::mpsc::channel();
        let ends: Vec<_> = cores.handles()[1..=busy]
            .iter()
            .map(|core| {
                let (end, ended) = std::sync::mpsc::channel::<()>();
                let begun = begun.clone();
                core.spawn(move || async move {
                    begun.send(()).unwrap();
                    let _ = ended.recv();
                });
                end
            })
            .collect();
        (0..busy).for_each(|_| all_begun.recv().unwrap());
        ends
    };
    for busy in [2, 1, 0] {
        let held = idle_beside(busy);
        // A core counts as idle only some time after its work has ended, so the test waits for it.
        let looks = cores.handles()[0].run(move || async move {
            let expected = Some(2 - busy);
            while idle() != expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let looked = tokio::time::timeout(Duration::from_secs(20), looks).await;
        assert_eq!(looked, Ok(Some(())), "{busy} are busy");
        drop(held);
    }
}

#[test]
fn too_many_cores_are_refused() {
    let config = CoresConfig { count: CORES_MAX + 1, ..CoresConfig::default() };
    assert!(Cores::start(&config).is_err());
}
