//! Log lines: to standard error as text or JSON, or to systemd's journal.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use frevo_config::LogFormat;
use frevo_server::quoted::{Quoted, is_obeyed};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
#[cfg(feature = "traces")]
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::exit::{Exit, Failure};

mod journal;
mod levels;

use journal::Journal;
use levels::Filters;

/// The level where neither flag nor configuration names one.
const DEFAULT_LEVEL: &str = "info";

/// The layer that sends spans to a collector, on top of all others. None until traces begin.
#[cfg(feature = "traces")]
type Spans = Option<Box<dyn Layer<Writing> + Send + Sync>>;

/// The registry with its filter and the layer that writes.
#[cfg(feature = "traces")]
type Writing = tracing_subscriber::layer::Layered<Box<dyn Layer<Filtered> + Send + Sync>, Filtered>;

/// The registry with its filter, below the layer that writes.
type Filtered = tracing_subscriber::layer::Layered<reload::Layer<Filters, Registry>, Registry>;

/// A handle to change the level while running.
#[derive(Clone)]
pub(crate) struct Logging {
    filters: reload::Handle<Filters, Registry>,
    #[cfg(feature = "traces")]
    spans: reload::Handle<Spans, Writing>,
}

impl std::fmt::Debug for Logging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logging").finish_non_exhaustive()
    }
}

impl Logging {
    /// Starts logging. Only once in a process.
    pub(crate) fn start(format: LogFormat, level: Option<&str>) -> Result<Self, Failure> {
        let layer: Box<dyn Layer<_> + Send + Sync> = match format {
            // The journal adds the time to each line, so the text leaves it out.
            LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
                text_layer().without_time().boxed()
            }
            LogFormat::Text => text_layer().boxed(),
            LogFormat::Json => {
                fmt::layer().json().flatten_event(true).with_writer(io::stderr).boxed()
            }
            LogFormat::Journald => {
                let failure = Failure::failed("cannot log to the journal; use --log text");
                Journal::connect().map_err(failure)?.boxed()
            }
        };
        Self::write_to(layer, level)
    }

    /// Starts logging to a file, which is made if it is not there.
    pub(crate) fn start_in(file: &Path, level: Option<&str>) -> Result<Self, Failure> {
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        let failure = Failure::failed(format!("cannot write to {}", file.display()));
        let file = Arc::new(opened.map_err(failure)?);
        let layer = fmt::layer().fmt_fields(TextFields).with_ansi(false);
        let layer = layer.with_writer(move || OneLine(Arc::clone(&file)));
        Self::write_to(layer.boxed(), level)
    }

    fn write_to(
        layer: Box<dyn Layer<Filtered> + Send + Sync>,
        level: Option<&str>,
    ) -> Result<Self, Failure> {
        let (filter, handle) = reload::Layer::new(Filters::new(filter(level)?));
        // With the feature `traces`, spans are made for the trace collector only, so log lines
        // leave them out.
        #[cfg(feature = "traces")]
        let layer =
            layer.with_filter(filter_fn(|metadata| metadata.target() != levels::SPANS)).boxed();
        let subscriber = tracing_subscriber::registry().with(filter).with(layer);
        #[cfg(feature = "traces")]
        let (subscriber, spans) = {
            let (layer, spans) = reload::Layer::new(None);
            (subscriber.with(layer), spans)
        };
        subscriber.try_init().map_err(Failure::failed("cannot start logging"))?;
        Ok(Self {
            filters: handle,
            #[cfg(feature = "traces")]
            spans,
        })
    }

    /// Sends spans to a tracer from now on.
    #[cfg(feature = "traces")]
    pub(crate) fn trace(&self, tracer: opentelemetry_sdk::trace::SdkTracer) -> Result<(), Failure> {
        let failure = || Failure::failed("cannot start traces");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        let started = self.spans.modify(|spans| *spans = Some(layer.boxed()));
        started.map_err(failure())?;
        self.filters.modify(|filters| filters.has_spans = true).map_err(failure())
    }

    /// Changes the level of the running process.
    pub(crate) fn set_level(&self, level: Option<&str>) -> Result<(), Failure> {
        let filter = filter(level)?;
        let change = |filters: &mut Filters| filters.all = filter;
        self.filters.modify(change).map_err(Failure::failed("cannot change the log level"))
    }

    /// Changes the level of lines about one client, which come beside all others. None ends it.
    pub(crate) fn set_client_level(
        &self,
        client: IpAddr,
        level: Option<&str>,
    ) -> Result<(), Failure> {
        let filter = level.map(|level| filter(Some(level))).transpose()?;
        let change = |filters: &mut Filters| {
            filters.of_client = filter.map(|filter| (client.to_canonical(), filter));
        };
        self.filters.modify(change).map_err(Failure::failed("cannot change the log level"))
    }

    /// The filter of all lines, and that of one client if there is one.
    pub(crate) fn levels(&self) -> (String, Option<(IpAddr, String)>) {
        let told = self.filters.with_current(|filters| {
            let of_client = filters.of_client.as_ref();
            let of_client = of_client.map(|(client, filter)| (*client, filter.to_string()));
            (filters.all.to_string(), of_client)
        });
        told.unwrap_or_default()
    }
}

/// A level, or a filter of targets and levels.
pub(crate) fn filter(level: Option<&str>) -> Result<EnvFilter, Failure> {
    let level = level.unwrap_or(DEFAULT_LEVEL);
    let words = ["off", "error", "warn", "info", "debug", "trace"];
    let is_typo = level.chars().all(char::is_alphanumeric)
        && !words.iter().any(|word| word.eq_ignore_ascii_case(level));
    // EnvFilter would take a mistyped level for the name of a target, so such a level is refused
    // before.
    let parsed = if is_typo { Err(String::from("no such level")) } else { parse(level) };
    parsed.map_err(|why| {
        let known = "use error, warn, info, debug or trace, or a filter such as \
                     info,frevo::tree=debug";
        Failure::new(Exit::Config, format!("log level \"{level}\": {why}; {known}"))
    })
}

fn parse(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(level).map_err(|error| error.to_string())
}

type TextLayer<S> =
    fmt::Layer<S, TextFields, fmt::format::Format<fmt::format::Full>, fn() -> OneLine<io::Stderr>>;

fn text_layer<S>() -> TextLayer<S> {
    fmt::layer().fmt_fields(TextFields).with_ansi(false).with_writer(|| OneLine(io::stderr()))
}

/// The fields of an event as text: the message, then `name=value` with each value
/// [`Quoted`] where it is more than a plain word. A client that calls itself
/// `ann reason=x` forges no field.
#[derive(Debug, Clone, Copy)]
struct TextFields;

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> Written {
        let mut line = TextLine { writer, is_first: true, written: Ok(()) };
        fields.record(&mut line);
        line.written
    }
}

type Written = std::fmt::Result;

/// The line of an event, field by field.
struct TextLine<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    written: Written,
}

impl TextLine<'_> {
    fn put(&mut self, field: &Field, value: &str) {
        let space = if self.is_first { "" } else { " " };
        self.is_first = false;
        let put = match field.name() {
            // The message may contain text from a client, in which a line end would begin a forged
            // log line.
            "message" => write!(self.writer, "{space}{}", OneLineText(value)),
            name => write!(self.writer, "{space}{name}={}", Quoted(value)),
        };
        self.written = self.written.and(put);
    }
}

impl Visit for TextLine<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        // A missing optional value (`None`) is not printed at all.
        if field.name() != "message" && text == "None" {
            return;
        }
        let inner = text.strip_prefix("Some(").and_then(|text| text.strip_suffix(')'));
        let inner = inner.unwrap_or(&text);
        // The text of an optional value has quotes already, and a line gets its own where it needs them.
        let bare = inner.starts_with('"').then(|| serde_json::from_str::<String>(inner).ok());
        self.put(field, bare.flatten().as_deref().unwrap_or(inner));
    }
}

/// Text without the characters that a terminal obeys.
struct OneLineText<'a>(&'a str);

impl std::fmt::Display for OneLineText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> Written {
        self.0.chars().try_for_each(|c| match is_obeyed(c) {
            true => write!(f, "{}", c.escape_unicode()),
            false => std::fmt::Write::write_char(f, c),
        })
    }
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

    /// Where the lines of a test go.
    #[derive(Debug, Clone, Default)]
    struct Captured(Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, event: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(event)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn names_forge_no_fields() {
        let kept = Captured::default();
        let writer = kept.clone();
        let layer = fmt::layer().fmt_fields(TextFields).with_ansi(false).without_time();
        let layer = layer.with_writer(move || OneLine(writer.clone()));
        let forged = "ann\" reason=\"no\nfrevo: a line peer=192.0.2.9:1 \u{9b}2J\u{202e}";
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            tracing::warn!(target: "frevo::session", peer = %"192.0.2.1:7", user = %forged,
                share = forged, left_out = None::<u64>, count = Some(3_u64), bound = ?Some(1), unbound = ?None::<u8>,
                "logon refused for {}", "a\nb\u{202e}");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let shown = r#""ann\" reason=\"no\nfrevo: a line peer=192.0.2.9:1 \u{9b}2J\u{202e}""#;
        let fields = format!("user={shown} share={shown} count=3 bound=1");
        let message = r"logon refused for a\u{a}b\u{202e}";
        let line = format!(" WARN frevo::session: {message} peer=192.0.2.1:7 {fields}\n");
        assert_eq!(text, line);
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
