//! Compares Frevo's client with smbclient and with a bare TCP stream, as programs: each run begins
//! with the logon and ends with the process.

mod batches;
mod ciphers;
mod depth;
mod files;
mod page;
mod plans;
pub(crate) mod relay;
pub(crate) mod stream;
pub(crate) mod usage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::common::Common;
use crate::proc;
use crate::server::{self, Kind, Peer, Target};
use files::{BIG, FLAT, Files, LIST, LISTED_FILES, MANY, MANY_FILES};
use page::{Comparison, Contestant, Figures, Page, Unit};
use plans::{Plan, plans};
use relay::Relay;
use stream::StreamServer;
use usage::{Invocation, Usage};

/// Concurrent requests that are compared with a single one.
const DEPTH: usize = 32;
/// Round trip added where the loopback's is too short for a comparison.
const LATENCY: Duration = Duration::from_micros(200);
/// Measuring time for one figure of the library or of a cipher.
const FIGURE: Duration = Duration::from_millis(1500);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Number of rounds of each comparison, after a warm-up round.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Parts of the names of comparisons to run, separated by commas.
    #[arg(long)]
    rows: Option<String>,
    /// Write the Markdown here and the JSON beside it (.json).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Also get the large file to a temporary directory here: on a disk, if the share is in memory.
    #[arg(long)]
    local: Option<PathBuf>,
    /// Mebibytes of the large file.
    #[arg(long, default_value_t = 1024)]
    mebibytes: u64,
    /// Exit with 1 unless every promise is kept.
    #[arg(long)]
    check: bool,
}

/// The protection of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    /// The program's default: Frevo signs.
    Default,
    /// smbclient's default, also for Frevo: signed only if the server requires it.
    Unsigned,
    Signed,
    Sealed,
}

/// The task of a client program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errand {
    Get,
    /// To the directory of `--local`.
    GetLocal,
    Put,
    GetMany,
    PutMany,
    /// Put all small files into one directory.
    PutFlat,
    List,
}

impl Errand {
    fn name(self) -> &'static str {
        match self {
            Self::Get | Self::GetLocal => "get",
            Self::Put => "put",
            Self::GetMany => "get-many",
            Self::PutMany => "put-many",
            Self::PutFlat => "put-flat",
            Self::List => "list",
        }
    }
}

/// A client program and the server that it uses.
#[derive(Debug, Clone)]
enum Runner {
    Frevo(Protection, Vec<String>, Vec<(String, String)>),
    Smbclient(Protection),
    Stream,
}

struct Lab<'a> {
    arguments: &'a Arguments,
    files: Files,
    scratch: &'a Path,
    frevo: Peer,
    smbd: Peer,
    /// The relay in front of smbd.
    relay: Relay,
    stream: StreamServer,
}

/// Runs `frevo-bench client`; returns the broken promises.
pub(crate) fn run(arguments: &Arguments) -> Result<Vec<String>> {
    let common = &arguments.common;
    let scratch = common.scratch()?;
    let local = arguments.local.as_ref();
    let local = local.map(|dir| tempfile::Builder::new().prefix("frevo-bench-").tempdir_in(dir));
    let local = local.transpose().context("--local")?;
    let files =
        Files::prepare(scratch.path(), local.as_ref().map(|dir| dir.path()), arguments.mebibytes)?;
    let programs = common.programs();
    let start =
        |kind: Kind| server::start(kind, kind.name(), &files.share, scratch.path(), &programs);
    let smbd = start(Kind::Smbd)?;
    let lab = Lab {
        arguments,
        frevo: start(Kind::Frevo)?,
        relay: Relay::start(smbd.target.addr.clone(), LATENCY)?,
        smbd,
        stream: StreamServer::start()?,
        files,
        scratch: scratch.path(),
    };
    let load_before = proc::load();
    let mut page = Page {
        machine: proc::machine(scratch.path()),
        setting: lab.setting(),
        comparisons: Vec::new(),
        figures: Vec::new(),
    };
    for plan in plans(lab.cores(), local.is_some()).into_iter().filter(|plan| lab.wants(plan.name))
    {
        eprintln!("{}", plan.name);
        page.comparisons.push(lab.compare(plan)?);
    }
    if lab.wants("depth") {
        page.figures.extend(lab.depths()?);
    }
    if lab.wants("cipher") {
        page.figures.extend(ciphers::figures(arguments.rounds, &[1, lab.cores()], FIGURE / 3)?);
    }
    page.setting.push(format!("load average {load_before:.1} before, {:.1} after", proc::load()));
    let markdown = page.markdown();
    println!("{markdown}");
    if let Some(path) = &arguments.out {
        std::fs::write(path, &markdown)?;
        let json = serde_json::to_string_pretty(&page.json())?;
        std::fs::write(path.with_extension("json"), json + "\n")?;
    }
    Ok(if arguments.check { page.missed() } else { Vec::new() })
}

#[derive(clap::Args)]
pub(crate) struct CryptoArguments {
    /// Number of rounds for each figure.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Runs `frevo-bench crypto`: sealing and signing without a peer and without files.
pub(crate) fn crypto(arguments: &CryptoArguments) -> Result<String> {
    let load = proc::load();
    let mut out = String::new();
    let alone = ciphers::figures(arguments.rounds, &[1, 2], FIGURE / 3)?;
    for figures in alone.into_iter().chain(batches::figures(arguments.rounds)?) {
        figures.markdown(&mut out);
    }
    Ok(format!("load average {load:.1} before, {:.1} after\n{out}", proc::load()))
}

impl Lab<'_> {
    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn wants(&self, name: &str) -> bool {
        let rows = self.arguments.rows.as_deref();
        rows.is_none_or(|rows| rows.split(',').any(|part| name.contains(part.trim())))
    }

    fn setting(&self) -> Vec<String> {
        let common = &self.arguments.common;
        vec![
            server::version(&common.frevo),
            format!(
                "smbd {}, smbclient of the same, their defaults",
                server::version(&common.smbd)
            ),
            format!(
                "{} interleaved rounds after a warm-up round; {} MiB in the large file; both ends on {}, the local disk is {}",
                self.arguments.rounds,
                self.files.big_len >> 20,
                proc::file_system(self.scratch),
                proc::file_system(self.files.got_local().parent().unwrap_or(self.scratch)),
            ),
        ]
    }

    /// Runs every runner in turn; the order reverses each round.
    fn compare(&self, plan: Plan) -> Result<Comparison> {
        let mut contestants: Vec<Contestant> =
            plan.runners.iter().map(|(label, _)| Contestant::new(label)).collect();
        for round in 0..=self.arguments.rounds.min(plan.rounds) {
            let mut order: Vec<_> = plan.runners.iter().zip(&mut contestants).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for ((_, runner), contestant) in order {
                if contestant.error.is_some() {
                    continue;
                }
                match self.once(&plan, runner) {
                    Ok(usage) if round > 0 => contestant.rounds.push(usage),
                    Ok(_) => {}
                    Err(error) => contestant.error = Some(format!("{error:#}")),
                }
            }
        }
        let (count, unit) = match plan.errand {
            Errand::Get | Errand::GetLocal | Errand::Put => {
                (self.files.big_len as f64, Unit::Bytes)
            }
            Errand::GetMany | Errand::PutMany | Errand::PutFlat => (MANY_FILES as f64, Unit::Files),
            Errand::List => (LISTED_FILES as f64, Unit::Entries),
        };
        Ok(Comparison {
            cores: self.cores(),
            name: plan.name.to_owned(),
            title: plan.title,
            count,
            unit,
            contestants,
            promises: plan.promises,
        })
    }

    /// Runs a runner once and checks its result.
    fn once(&self, plan: &Plan, runner: &Runner) -> Result<Usage> {
        let errand = plan.errand;
        let peer = if plan.server == Kind::Frevo { &self.frevo } else { &self.smbd };
        let mut target = peer.target.clone();
        if plan.is_far {
            target.addr = format!("127.0.0.1:{}", self.relay.port);
        }
        let output = self.scratch.join("output");
        self.files.clear(errand)?;
        let (pid, invocation) = match runner {
            Runner::Stream => (self.stream.pid(), self.stream_errand(errand)?),
            Runner::Frevo(protection, more, environment) => {
                let invocation = self.frevo_errand(errand, &target, *protection);
                let invocation = invocation.args(more);
                let invocation = environment.iter().fold(invocation, |all, (k, v)| all.env(k, v));
                (peer.pid(), invocation)
            }
            Runner::Smbclient(protection) => {
                (peer.pid(), self.smbclient_errand(errand, &target, *protection)?)
            }
        };
        let usage = invocation.run(pid, self.scratch, &output)?;
        self.files.check(errand, &output)?;
        self.files.clear(errand)?;
        Ok(usage)
    }

    fn stream_errand(&self, errand: Errand) -> Result<Invocation> {
        let (there, here) = match errand {
            Errand::Get => (self.files.share.join(BIG), self.files.got(BIG)),
            Errand::GetLocal => (self.files.share.join(BIG), self.files.got_local()),
            Errand::Put => {
                (self.files.share.join(files::PUT).join(BIG), self.files.local.join(BIG))
            }
            _ => anyhow::bail!("a stream carries only one file"),
        };
        Ok(Invocation::new(std::env::current_exe()?)
            .args(["stream", &self.stream.address, errand.name()])
            .arg(there)
            .arg(here))
    }

    fn frevo_errand(&self, errand: Errand, target: &Target, protection: Protection) -> Invocation {
        let url = |path: &str| format!("smb://{}@{}/share/{path}", target.user, target.addr);
        let put = |name: &str| url(&format!("{}/{name}", files::PUT));
        let run =
            Invocation::new(&self.arguments.common.frevo).env("FREVO_PASSWORD", &target.password);
        let run = match errand {
            Errand::GetLocal => run.arg("get").arg(url(BIG)).arg(self.files.got_local()),
            Errand::Get => run.arg("get").arg(url(BIG)).arg(self.files.got(BIG)),
            Errand::Put => run.arg("put").arg(self.files.local.join(BIG)).arg(put(BIG)),
            Errand::GetMany => run.args(["get", "-r"]).arg(url(MANY)).arg(self.files.got(MANY)),
            // The target directory exists, so `put` copies the folder into it under its own name.
            Errand::PutMany => {
                run.args(["put", "-r"]).arg(self.files.local.join(MANY)).arg(url(files::PUT))
            }
            Errand::PutFlat => {
                run.args(["put", "-r"]).arg(self.files.local.join(FLAT)).arg(url(files::PUT))
            }
            Errand::List => run.args(["ls", "-l"]).arg(url(LIST)),
        };
        match protection {
            Protection::Default | Protection::Signed => run,
            Protection::Unsigned => run.arg("--sign-when-asked"),
            Protection::Sealed => run.arg("--encrypt"),
        }
    }

    fn smbclient_errand(
        &self,
        errand: Errand,
        target: &Target,
        protection: Protection,
    ) -> Result<Invocation> {
        let (host, port) = target.addr.rsplit_once(':').context("the address has no port")?;
        let secret = self.scratch.join("smbclient-secret");
        std::fs::write(
            &secret,
            format!("username={}\npassword={}\n", target.user, target.password),
        )?;
        let conf = self.scratch.join("smbclient.conf");
        std::fs::write(&conf, "")?;
        let here = |path: PathBuf| path.display().to_string();
        let command = match errand {
            Errand::GetLocal => format!("get {BIG} {}", here(self.files.got_local())),
            Errand::Get => format!("get {BIG} {}", here(self.files.got(BIG))),
            Errand::Put => {
                format!("put {} {}\\{BIG}", here(self.files.local.join(BIG)), files::PUT)
            }
            Errand::GetMany => {
                let to = self.files.got(MANY);
                std::fs::create_dir_all(&to)?;
                format!("prompt off; recurse on; cd {MANY}; lcd {}; mget *", here(to))
            }
            Errand::PutMany | Errand::PutFlat => {
                let name = if errand == Errand::PutMany { MANY } else { FLAT };
                let from = here(self.files.local.join(name));
                format!(
                    "prompt off; recurse on; cd {}; mkdir {name}; cd {name}; lcd {from}; mput *",
                    files::PUT
                )
            }
            Errand::List => format!("cd {LIST}; ls"),
        };
        let run = Invocation::new("smbclient")
            .arg("-s")
            .arg(conf)
            .arg(format!("//{host}/share"))
            .args(["-p", port])
            .arg("-A")
            .arg(secret);
        let run = match protection {
            Protection::Default | Protection::Unsigned => run,
            Protection::Signed => run.arg("--client-protection=sign"),
            Protection::Sealed => run.arg("--client-protection=encrypt"),
        };
        Ok(run.arg("-c").arg(command))
    }

    /// Measures random reads, single and concurrent, on the loopback and with a latency.
    fn depths(&self) -> Result<Vec<Figures>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut all = Vec::new();
        for latency in [Duration::ZERO, LATENCY] {
            let where_ = if latency.is_zero() {
                "loopback".to_owned()
            } else {
                format!("with {} us more of round trip", latency.as_micros())
            };
            eprintln!("depth, {where_}");
            let mut rates = [Vec::new(), Vec::new()];
            for round in 0..self.arguments.rounds {
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                for which in order {
                    let depth = [1, DEPTH][which];
                    let read =
                        depth::reads_a_second(&self.frevo.target, BIG, depth, latency, FIGURE);
                    rates[which].push(runtime.block_on(read)?);
                }
            }
            let [one, many] = rates;
            all.push(Figures {
                title: format!("random reads of 4 KiB through the library, {where_}, a second"),
                rows: vec![("depth 1".into(), one), (format!("depth {DEPTH}"), many)],
                least: (!latency.is_zero()).then_some(4.5),
            });
        }
        Ok(all)
    }
}
