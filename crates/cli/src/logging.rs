//! Log lines: to standard error as text or JSON, or to systemd's journal.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use frevo_server::config::LogFormat;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::exit::{Exit, Failure};

/// What is logged when nobody says otherwise.
const DEFAULT_LEVEL: &str = "info";

/// What a layer that writes is put on.
type Filtered = tracing_subscriber::layer::Layered<reload::Layer<EnvFilter, Registry>, Registry>;

/// A handle to change the level while running.
#[derive(Debug)]
pub(crate) struct Logging(reload::Handle<EnvFilter, Registry>);

impl Logging {
    /// Starts logging. Only once in a process.
    pub(crate) fn start(format: LogFormat, level: Option<&str>) -> Result<Self, Failure> {
        let layer: Box<dyn Layer<_> + Send + Sync> = match format {
            // The journal notes the time itself.
            LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
                text_layer().without_time().boxed()
            }
            LogFormat::Text => text_layer().boxed(),
            LogFormat::Json => {
                fmt::layer().json().flatten_event(true).with_writer(io::stderr).boxed()
            }
            LogFormat::Journald => {
                let layer = tracing_journald::layer();
                let failure = Failure::failed("cannot log to the journal; use --log text");
                layer.map_err(failure)?.with_syslog_identifier(String::from("frevo")).boxed()
            }
        };
        Self::write_to(layer, level)
    }

    /// Starts logging to a file, which is made if it is not there.
    pub(crate) fn start_in(file: &Path, level: Option<&str>) -> Result<Self, Failure> {
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        let failure = Failure::failed(format!("cannot write to {}", file.display()));
        let file = Arc::new(opened.map_err(failure)?);
        let layer = fmt::layer().with_ansi(false).with_writer(move || OneLine(Arc::clone(&file)));
        Self::write_to(layer.boxed(), level)
    }

    fn write_to(
        layer: Box<dyn Layer<Filtered> + Send + Sync>,
        level: Option<&str>,
    ) -> Result<Self, Failure> {
        let (filter, handle) = reload::Layer::new(filter(level)?);
        let subscriber = tracing_subscriber::registry().with(filter).with(layer);
        subscriber.try_init().map_err(Failure::failed("cannot start logging"))?;
        Ok(Self(handle))
    }

    /// Takes another level.
    pub(crate) fn set_level(&self, level: Option<&str>) -> Result<(), Failure> {
        let filter = filter(level)?;
        self.0.reload(filter).map_err(Failure::failed("cannot change the log level"))
    }
}

/// A level, or a filter of targets and levels.
pub(crate) fn filter(level: Option<&str>) -> Result<EnvFilter, Failure> {
    let level = level.unwrap_or(DEFAULT_LEVEL);
    let words = ["off", "error", "warn", "info", "debug", "trace"];
    let is_typo = level.chars().all(char::is_alphanumeric)
        && !words.iter().any(|word| word.eq_ignore_ascii_case(level));
    // EnvFilter would take the typing slip for the name of a target.
    let parsed = if is_typo { Err(String::from("no such level")) } else { parse(level) };
    parsed.map_err(|why| {
        let known = "a log level is error, warn, info, debug or trace, or a filter such as \
                     info,frevo::tree=debug";
        Failure::new(Exit::Config, format!("log level {level:?}: {why}; {known}"))
    })
}

fn parse(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(level).map_err(|error| error.to_string())
}

type TextLayer<S> = fmt::Layer<
    S,
    fmt::format::DefaultFields,
    fmt::format::Format<fmt::format::Full>,
    fn() -> OneLine<io::Stderr>,
>;

fn text_layer<S>() -> TextLayer<S> {
    fmt::layer().with_ansi(false).with_writer(|| OneLine(io::stderr()))
}

/// Keeps an event on its line: names come from strangers, who could forge a
/// line of the log with a line end of their own.
#[derive(Debug)]
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let body = event.strip_suffix(b"\n").unwrap_or(event);
        if body.iter().any(u8::is_ascii_control) {
            let mut line = Vec::with_capacity(event.len() + 16);
            for byte in body {
                match byte {
                    byte if byte.is_ascii_control() => line.extend(byte.escape_ascii()),
                    byte => line.push(*byte),
                }
            }
            line.push(b'\n');
            self.0.write_all(&line)?;
        } else {
            self.0.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters() {
        for good in ["info", "WARN", "info,frevo::tree=debug", "frevo=trace", "off"] {
            assert!(filter(Some(good)).is_ok(), "{good}");
        }
        for bad in ["inof", "verbose", "frevo=loud"] {
            assert_eq!(filter(Some(bad)).unwrap_err().exit, Exit::Config, "{bad}");
        }
        assert!(filter(None).is_ok());
    }

    #[test]
    fn an_event_is_a_line() {
        let mut out = Vec::new();
        OneLine(&mut out).write_all(b"user ann\nfrevo: forged \x1b[1m\n").unwrap();
        OneLine(&mut out).write_all("user B\u{fc}ro\n".as_bytes()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "user ann\\nfrevo: forged \\x1b[1m\nuser B\u{fc}ro\n");
    }
}
