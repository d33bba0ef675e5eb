//! Measures the roads that file data can take, to choose the constants in
//! `limits.rs` by. `road_bench [send] [receive] [read] [write]`.
#![allow(clippy::print_stdout, reason = "it reports to a person")]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_net::buffer::{Buf, HEADROOM};
use frevo_net::file_io::{self, File, RoadChoice};
use frevo_net::frame_reader::FrameReader;
use frevo_net::send_queue::{OutFrame, SendLimits, SendQueue};
use frevo_net::transport::Stream;

const FILE_BYTES: usize = 64 << 20;
const ROUNDS: usize = 5;

/// The time of one round in seconds: elapsed, and of this thread on the processor.
struct Took {
    wall: f64,
    cpu: f64,
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn report(what: &str, len: usize, ops: usize, mut rounds: Vec<Took>) {
    rounds.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    let best = &rounds[0];
    let median = &rounds[rounds.len() / 2];
    let rate = |took: &Took| (len * ops) as f64 / took.wall / 1e9;
    println!(
        "{what:28} {:>6} KiB  best {:6.2} GB/s  median {:6.2} GB/s  cpu {:8.1} us/op",
        len >> 10,
        rate(best),
        rate(median),
        median.cpu / ops as f64 * 1e6,
    );
}

fn data_file(directory: &str) -> (File, std::fs::File) {
    let file = tempfile::tempfile_in(directory).expect("a file");
    let block: Vec<u8> = (0..1 << 20).map(|n: u32| n as u8).collect();
    for at in (0..FILE_BYTES).step_by(block.len()) {
        file.write_all_at(&block, at as u64).expect("a full file");
    }
    (File::new(Arc::new(file.try_clone().expect("dup"))).expect("regular"), file)
}

async fn pair() -> (Stream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let stream = Stream::connect(listener.local_addr().expect("bound")).await.expect("connect");
    (stream, listener.accept().expect("accept").0)
}

/// Binds this thread, so that rounds differ by what they do alone.
fn pin(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Reads and forgets until the end; with `ack`, says so after that many bytes.
fn sink(mut peer: std::net::TcpStream, ack: Option<usize>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        pin(1);
        let mut block = vec![0; 1 << 20];
        let mut since = 0;
        while let Ok(count @ 1..) = peer.read(&mut block) {
            since += count;
            if ack.is_some_and(|ack| since >= ack) {
                since = 0;
                peer.write_all(&[0]).expect("ack");
            }
        }
    })
}

/// Waits for a byte from the sink.
async fn acknowledged(stream: &Stream) {
    let mut byte = [0];
    while stream.try_read_vectored(&mut [std::io::IoSliceMut::new(&mut byte)]).is_err() {
        stream.readable().await.expect("ack");
    }
}

async fn send(one_by_one: bool) {
    let (file, _raw) = data_file(".");
    println!("-- send, {}", if one_by_one { "one by one" } else { "streaming" });
    for len in [4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096].map(|kib| kib << 10) {
        for (what, sendfile_from, splice_from) in [
            ("read into buffer, write", usize::MAX, usize::MAX),
            ("sendfile", 0, usize::MAX),
            ("splice", 0, 0),
        ] {
            let ops = ((1 << 30) / len).min(8192);
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let (stream, peer) = pair().await;
                let sink = sink(peer, one_by_one.then_some(len + 84));
                let limits = SendLimits { sendfile_from, splice_from, ..SendLimits::default() };
                let queue = SendQueue::new(limits);
                let (began, cpu) = (Instant::now(), cpu_seconds());
                for op in 0..ops {
                    let offset = (op * len % FILE_BYTES) as u64;
                    let frame = if sendfile_from == usize::MAX {
                        let buf = Buf::with_headroom(HEADROOM, len);
                        let mut buf = file.read(offset, buf, len).await.expect("read");
                        buf.grow_front(80);
                        OutFrame::new(buf)
                    } else {
                        OutFrame::with_tail(Buf::copy_of(&[0; 80]), file.segment(offset, len))
                    };
                    queue.push(frame);
                    queue.flush(&stream).await.expect("flush");
                    if one_by_one {
                        acknowledged(&stream).await;
                    }
                }
                rounds.push(Took { wall: began.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu });
                drop(stream);
                sink.join().expect("sink");
            }
            report(what, len, ops, rounds);
        }
    }
}

async fn receive() {
    for len in [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        let body = len + 112;
        let ops = ((1 << 30) / len).min(32_768);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let (stream, mut peer) = pair().await;
            let source = std::thread::spawn(move || {
                pin(1);
                let mut frame = (body as u32).to_be_bytes().to_vec();
                frame.resize(4 + body, 7);
                for _ in 0..ops {
                    peer.write_all(&frame).expect("send");
                }
            });
            let mut reader = FrameReader::new(16 << 20);
            let (began, cpu) = (Instant::now(), cpu_seconds());
            for _ in 0..ops {
                let frame = reader.next(&stream).await.expect("receive").expect("a frame");
                assert_eq!(frame.len(), body);
            }
            rounds.push(Took { wall: began.elapsed().as_secs_f64(), cpu: cpu_seconds() - cpu });
            source.join().expect("source");
        }
        report("receive", len, ops, rounds);
    }
}

const ROADS: [(&str, RoadChoice); 3] = [
    ("inline", RoadChoice { inline: true, ring: true }),
    ("ring", RoadChoice { inline: false, ring: true }),
    ("threads", RoadChoice { inline: false, ring: false }),
];

async fn read() {
    for directory in [".", "/dev/shm"] {
        let (file, raw) = data_file(directory);
        raw.sync_all().expect("sync");
        println!("-- {} {:?}", directory, file.mount().report().file_system);
        for cold in [false, true] {
            if cold && directory != "." {
                continue;
            }
            for len in [4 << 10, 64 << 10, 1 << 20] {
                for (what, choice) in ROADS {
                    file_io::choose_roads(choice);
                    let ops = (FILE_BYTES / len).min(4096);
                    let mut rounds = Vec::new();
                    for _ in 0..ROUNDS {
                        if cold {
                            rustix::fs::fadvise(&raw, 0, None, rustix::fs::Advice::DontNeed)
                                .expect("fadvise");
                        }
                        let (began, cpu) = (Instant::now(), cpu_seconds());
                        for op in 0..ops {
                            let offset = (op * len) as u64;
                            let buf = Buf::with_headroom(HEADROOM, len);
                            file.read(offset, buf, len).await.expect("read");
                        }
                        rounds.push(Took {
                            wall: began.elapsed().as_secs_f64(),
                            cpu: cpu_seconds() - cpu,
                        });
                    }
                    let how = if cold { "cold" } else { "hot" };
                    report(&format!("read {how} {what}"), len, ops, rounds);
                }
            }
        }
    }
}

async fn write() {
    for directory in [".", "/dev/shm"] {
        println!("-- {directory}");
        for len in [4 << 10, 64 << 10, 1 << 20] {
            for depth in [1, 4] {
                for (what, choice) in ROADS {
                    file_io::choose_roads(choice);
                    let ops = ((256 << 20) / len).min(8192);
                    let mut rounds = Vec::new();
                    for _ in 0..ROUNDS {
                        let raw = tempfile::tempfile_in(directory).expect("a file");
                        let file = Rc::new(File::new(Arc::new(raw)).expect("regular"));
                        let (began, cpu) = (Instant::now(), cpu_seconds());
                        let lane = |first: usize| {
                            let file = Rc::clone(&file);
                            async move {
                                for op in (first..ops).step_by(depth) {
                                    let mut data = Buf::with_capacity(len);
                                    data.resize(len, 1);
                                    file.write((op * len) as u64, &data).await.expect("write");
                                }
                            }
                        };
                        let local = tokio::task::LocalSet::new();
                        let lanes: Vec<_> =
                            (0..depth).map(|first| local.spawn_local(lane(first))).collect();
                        local
                            .run_until(async {
                                for lane in lanes {
                                    lane.await.expect("lane");
                                }
                            })
                            .await;
                        rounds.push(Took {
                            wall: began.elapsed().as_secs_f64(),
                            cpu: cpu_seconds() - cpu,
                        });
                    }
                    report(&format!("write x{depth} {what}"), len, ops, rounds);
                }
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|a| a == name);
    println!("{:?}", file_io::road());
    if wanted("send") {
        pin(0);
        send(false).await;
        send(true).await;
    }
    if wanted("receive") {
        pin(0);
        receive().await;
    }
    if wanted("read") {
        read().await;
    }
    if wanted("write") {
        write().await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
}
