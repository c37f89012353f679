//! The node's log, on standard error: a line for each event, as text or as JSON.
//!
//! | event | level | when |
//! | --- | --- | --- |
//! | `start`, `run` | info | the node runs; a line for each route, chain and link |
//! | `note` | warn | a remark about a device |
//! | `apply` | info | another version runs: who requested it, and what it changes |
//! | `refuse` | warn | the node refused a program or a change |
//! | `name` | info, warn | the name of an endpoint has other addresses, or none |
//! | `endpoint` | info, warn | an endpoint is up, or down and why |
//! | `port` | info, warn | the device of a port is back, or gone |
//! | `lost` | warn | rows of sinks were lost, or refused by a table |
//! | `exhausted` | warn | a limit was reached, or a peer was refused, by reason |
//! | `stop` | info | the node stops, and has stopped |
//!
//! Peers may flood a node, so each kind of event has at most [`LINES_MAX`] lines in [`WINDOW`]. The next line of this
//! kind gives the number of suppressed ones.

use crate::stderr;
use core::fmt;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use weft_core::Time;
use weft_core::text::{escape, escape_lines};

/// Lines of one kind of event in a [`WINDOW`].
pub(crate) const LINES_MAX: u32 = 32;
/// The period over which the lines of a kind are counted.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// The importance of an event, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Level {
    /// The node cannot go on
    Error,
    /// Something needs attention
    Warn,
    /// Events for later review
    Info,
    /// Details for troubleshooting
    Debug,
}

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Time, level, sentence
    Text,
    /// One JSON object per line: time, level, event, text, and the event's data
    Json,
}

/// A handle of the log. Clones write to the same log.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    level: Level,
    format: Format,
    written: Mutex<Terminal>,
}

/// The state of standard error.
#[derive(Debug, Default)]
struct Terminal {
    /// Lines of the table above the cursor.
    table_lines: usize,
    kinds: BTreeMap<&'static str, KindWindow>,
}

/// The lines of one kind of event in the current window.
#[derive(Debug)]
struct KindWindow {
    began: Instant,
    lines: u32,
    left_out: u64,
}

impl Log {
    /// A log of events of at least this level.
    pub(crate) fn new(format: Format, level: Level) -> Self {
        Self { shared: Arc::new(Shared { level, format, written: Mutex::default() }) }
    }

    /// Logs an event: a sentence, and its data as fields.
    pub(crate) fn event(&self, level: Level, event: &'static str, text: &str, fields: &[(&str, Value)]) {
        if level > self.shared.level {
            return;
        }
        let mut written = self.lock();
        let Some(left_out) = written.admit(event, Instant::now()) else { return };
        written.erase_table();
        let line = LogEvent { time: now(), level, event, text, fields, left_out };
        stderr::print(&format!("{}\n", line.written(self.shared.format)));
    }

    /// Shows a table below the last line. On a terminal it replaces the previous table.
    pub(crate) fn show_table(&self, text: &str, is_terminal: bool) {
        let mut written = self.lock();
        written.erase_table();
        stderr::print(text);
        if is_terminal {
            written.table_lines = text.lines().count();
        }
    }

    /// Prints text of a command that is no event of its node.
    pub(crate) fn print(&self, text: &str) {
        self.lock().erase_table();
        stderr::line(format_args!("{text}"));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Terminal> {
        self.shared.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terminal {
    /// The number of suppressed lines of this kind, if the window has room for another line.
    fn admit(&mut self, event: &'static str, now: Instant) -> Option<u64> {
        let kind = self.kinds.entry(event).or_insert(KindWindow { began: now, lines: 0, left_out: 0 });
        if now.duration_since(kind.began) >= WINDOW {
            (kind.began, kind.lines) = (now, 0);
        }
        if kind.lines >= LINES_MAX {
            kind.left_out += 1;
            return None;
        }
        kind.lines += 1;
        Some(core::mem::take(&mut kind.left_out))
    }

    fn erase_table(&mut self) {
        if self.table_lines > 0 {
            stderr::control(&format!("\x1b[{}A\x1b[J", self.table_lines));
            self.table_lines = 0;
        }
    }
}

struct LogEvent<'a> {
    time: Time,
    level: Level,
    event: &'static str,
    text: &'a str,
    fields: &'a [(&'a str, Value)],
    /// Suppressed events of this kind since the last line.
    left_out: u64,
}

impl LogEvent<'_> {
    /// The event as a line. Peers and clients choose parts of it, so it is escaped: it stays one line and moves no
    /// cursor.
    fn written(&self, format: Format) -> String {
        let time = weft_core::text::Rfc3339(self.time.0).to_string();
        match format {
            Format::Text => {
                let left_out = match self.left_out {
                    0 => String::new(),
                    n => format!(" ({n} more of this kind were left out)"),
                };
                format!("{time} {:<5} {}{left_out}", self.level, escape(self.text))
            }
            Format::Json => {
                let mut object = Map::new();
                object.insert("time".to_owned(), time.into());
                object.insert("level".to_owned(), self.level.to_string().into());
                object.insert("event".to_owned(), self.event.into());
                object.insert("text".to_owned(), self.text.into());
                object.extend(self.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
                if self.left_out > 0 {
                    object.insert("left_out".to_owned(), self.left_out.into());
                }
                escape_lines(&Value::Object(object).to_string()).into_owned()
            }
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        })
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(text: &'a str, fields: &'a [(&'a str, Value)], left_out: u64) -> LogEvent<'a> {
        LogEvent { time: Time(1_500_000_000), level: Level::Warn, event: "apply", text, fields, left_out }
    }

    /// A client could forge log lines with a chosen name, or move the cursor of a reader's terminal.
    #[test]
    fn hostile_text_stays_on_one_line() {
        let fields = [("by", Value::from("eve\x1b[2J\nroot"))];
        let hostile = line("by eve\x1b[2J\nroot", &fields, 0);
        for format in [Format::Text, Format::Json] {
            let written = hostile.written(format);
            assert!(!written.contains(['\n', '\x1b']), "{written:?}");
        }
        let read: Value = serde_json::from_str(&hostile.written(Format::Json)).expect("it is JSON");
        assert_eq!(read["by"], "eve\x1b[2J\nroot");
        assert_eq!((&read["level"], &read["event"]), (&"warn".into(), &"apply".into()));
    }

    /// A flood of one kind would hide all other events, or fill the disk.
    #[test]
    fn event_flood_leaves_other_kinds() {
        let (mut written, begun) = (Terminal::default(), Instant::now());
        let admitted = (0..100).filter(|_| written.admit("endpoint", begun).is_some()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(written.admit("apply", begun), Some(0));
        assert_eq!(written.admit("endpoint", begun + WINDOW), Some(100 - u64::from(LINES_MAX)));
        assert_eq!(written.admit("endpoint", begun + WINDOW), Some(0));
        let text = line("an endpoint is down", &[], 68).written(Format::Text);
        assert!(text.ends_with("warn  an endpoint is down (68 more of this kind were left out)"), "{text}");
    }
}
