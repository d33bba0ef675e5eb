//! `frevo decode`: the messages of a capture, one line for each.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, ValueHint};
use frevo_capture::decode::{Decoder, Line};
use frevo_capture::pcapng::read::{Counted, Item, PIECE_BYTES, Reader, Step};
use serde_json::{Value, json};

use crate::console::tell;
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;
use crate::printable::printable;
use crate::remote::output::{exact_time, line, unwritten};

/// `frevo decode`
#[derive(Debug, Args)]
pub(crate) struct Decode {
    /// Capture to read, pcapng or pcap: of --capture, `frevo capture`, or of tcpdump where SMB
    /// is not encrypted; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// Bytes that are read from a file at once, at least.
const READ_BYTES: usize = 256 << 10;

/// The outcome of a whole file.
#[derive(Debug, Default)]
struct Told {
    /// Time of the first message, nanoseconds since 1970.
    begin_ns: Option<u64>,
    messages: usize,
    connections: u32,
    counted: Option<Counted>,
}

/// Runs `frevo decode`.
pub(crate) fn run(arguments: &Decode) -> Done {
    let shown = arguments.file.display();
    let mut file = open(&arguments.file).map_err(|error| {
        let missing = error.kind() == ErrorKind::NotFound;
        let exit = if missing { Exit::NotFound } else { Exit::Failed };
        Failure::new(exit, format!("cannot read {shown}: {error}"))
    })?;
    let mut told = Told::default();
    let read = read(&mut *file, |item, decoder| told.take(item, decoder, arguments.json));
    let is_whole = read.map_err(|why| Failure::new(Exit::Failed, format!("{shown}: {why}")))?;
    unwritten()?;
    if !is_whole {
        tell(format_args!("{shown} ends in the middle of a packet; nothing before it is missing"));
    }
    told.finish();
    Ok(())
}

fn open(path: &Path) -> std::io::Result<Box<dyn Read>> {
    match path == Path::new("-") {
        true => Ok(Box::new(std::io::stdin())),
        false => Ok(Box::new(File::open(path)?)),
    }
}

/// Reads a file in pieces, and gives `take` all parts of it, until it returns false. Returns false if the file
/// ends in the middle of a part.
fn read(
    file: &mut dyn Read,
    mut take: impl FnMut(Item<'_>, &mut Decoder) -> bool,
) -> Result<bool, String> {
    let (mut reader, mut decoder) = (Reader::new(), Decoder::new());
    let (mut piece, mut at): (Vec<u8>, usize) = (Vec::new(), 0);
    loop {
        match reader.step(piece.get(at..).unwrap_or(&[])).map_err(|why| why.to_string())? {
            Step::Took(count, item) => {
                at += count;
                if !take(item, &mut decoder) {
                    return Ok(true);
                }
            }
            Step::Needs(bytes) => {
                piece.drain(..at.min(piece.len()));
                at = 0;
                let wanted = bytes.clamp(READ_BYTES, PIECE_BYTES).saturating_sub(piece.len());
                let limited = &mut Read::take(&mut *file, wanted as u64);
                let count = limited.read_to_end(&mut piece).map_err(|why| why.to_string())?;
                if count == 0 {
                    return Ok(piece.is_empty());
                }
            }
        }
    }
}

impl Told {
    /// Prints the messages that a part of the file ends. Returns false when nobody reads them.
    fn take(&mut self, item: Item<'_>, decoder: &mut Decoder, is_json: bool) -> bool {
        let packet = match item {
            Item::Packet(packet) => packet,
            Item::Statistics(counted) => {
                self.counted = Some(counted);
                return true;
            }
            Item::Comment(_) | Item::Other => return true,
        };
        decoder.packet(&packet).iter().all(|one| {
            self.messages += 1;
            self.connections = self.connections.max(one.connection);
            let begin_ns = self.begin_ns.or(one.time_ns);
            self.begin_ns = begin_ns;
            match is_json {
                true => line(object(one)),
                false => line(printable(&text(one, begin_ns))),
            }
        })
    }

    /// Says how much there was, and how much the file lacks.
    fn finish(self) {
        if self.messages == 0 {
            tell("no message of SMB is in the file");
            return;
        }
        let messages = counted(self.messages, "message");
        let connections = counted(self.connections as usize, "connection");
        let mut text = format!("{messages}, {connections}");
        if let Some(counted) = self.counted
            && !counted.comment.is_empty()
        {
            text = format!("{text}; {}", counted.comment);
        }
        tell(text);
    }
}

/// A message in one line.
fn text(one: &Line, begin_ns: Option<u64>) -> String {
    let since = one.time_ns.zip(begin_ns).map(|(time, begin)| time.saturating_sub(begin));
    let since = since.map_or_else(String::new, |since| format!("{:.6}", since as f64 / 1e9));
    let way = if one.is_of_server { '<' } else { '>' };
    let mut text = format!("{since:>11} {:>3} {way} {:<16}", one.connection, one.command);
    if let Some(status) = one.status {
        text.push_str(&format!(" {status}"));
    }
    if let Some(latency) = one.latency_ns {
        text.push_str(&format!(" {:.3} ms", latency as f64 / 1e6));
    }
    for part in [&one.name, &one.text] {
        if !part.is_empty() {
            text.push_str(&format!("  {part}"));
        }
    }
    if !one.notes.is_empty() {
        text.push_str(&format!("  [{}]", one.notes.join("; ")));
    }
    text.truncate(text.trim_end().len());
    text
}

/// A message as a JSON object. All members are always present.
fn object(one: &Line) -> Value {
    let time = one.time_ns.and_then(|time| UNIX_EPOCH.checked_add(Duration::from_nanos(time)));
    let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "time": time.map(exact_time),
        "connection": one.connection,
        "from": if one.is_of_server { "server" } else { "client" },
        "answer": one.is_answer,
        "command": one.command,
        "status": one.status.map(|status| status.to_string()),
        "code": one.status.map(|status| status.0),
        "latency_us": one.latency_ns.map(|latency| latency as f64 / 1e3),
        "message_id": one.message_id,
        "async_id": one.async_id,
        "session_id": one.session_id,
        "tree_id": one.tree_id,
        "name": name(&one.name),
        "text": name(&one.text),
        "bytes": one.bytes,
        "data_bytes": one.data_bytes,
        "cut_bytes": one.cut_bytes,
        "credit_charge": one.credit_charge,
        "credits": one.credits,
        "replay": one.is_replay,
        "notes": one.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_latency_and_notes() {
        let one = Line {
            time_ns: Some(5_000_700_000),
            connection: 2,
            is_of_server: true,
            is_answer: true,
            command: String::from("READ"),
            status: Some(frevo_wire::Status::SUCCESS),
            latency_ns: Some(1_234_567),
            name: String::from("a.txt"),
            text: String::from("7 bytes"),
            notes: vec![String::from("one"), String::from("two")],
            ..Line::default()
        };
        let expected =
            "   0.000700   2 < READ             SUCCESS 1.235 ms  a.txt  7 bytes  [one; two]";
        assert_eq!(text(&one, Some(5_000_000_000)), expected);
        let object = object(&one);
        assert_eq!(
            (&object["time"], &object["latency_us"]),
            (&json!("1970-01-01T00:00:05.0007Z"), &json!(1234.567))
        );
    }

    #[test]
    fn a_file_is_read_in_pieces_and_may_end_early() {
        let mut file = Vec::new();
        frevo_capture::pcapng::begin("test", "a test", &mut file);
        for cut in [0, 1, 5] {
            let mut rest = file.get(..file.len() - cut).unwrap();
            let mut parts = 0;
            let whole = read(&mut rest, |_, _| {
                parts += 1;
                true
            });
            assert_eq!(whole, Ok(cut == 0));
            assert_eq!(parts, if cut == 0 { 2 } else { 1 });
        }
        assert!(read(&mut &b"GIF89a"[..], |_, _| true).is_err());
    }
}
