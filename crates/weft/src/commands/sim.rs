//! `weft sim`: experiments in simulated networks.

use crate::fault::Fault;
use crate::progress::Progress;
use crate::recording_file::{claim, write};
use crate::signals;
use crate::source::{self, read_lossy, require};
use crate::stderr;
use crate::stdout;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;
use weft_bench::networks::{self, Console, ShowProgress, SimArgs};
use weft_control::check::Checked;
use weft_control::files::Files;

/// Runs the experiment of `weft sim`.
pub(crate) fn run(args: &SimArgs) -> Result<(), Fault> {
    networks::run(args, &Command)
}

/// This command, as the console of an experiment.
struct Command;

impl Console for Command {
    fn files(&self, text: Option<(&str, String)>) -> Files {
        let texts = text.into_iter().map(|(name, text)| (name.to_owned(), text));
        source::with_open(&Arc::new(texts.collect()))
    }

    fn require(&self, path: &str) -> Result<(), Fault> {
        require(path)
    }

    fn read(&self, path: &Path, bytes_max: u64) -> Result<String, Fault> {
        read_lossy(path, bytes_max)
    }

    fn claim(&self, path: &Path) -> Result<(), Fault> {
        claim(path)
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), Fault> {
        write(path, text)
    }

    fn print(&self, text: &str) -> Result<(), Fault> {
        stdout::print(text)
    }

    fn diagnostics(&self, checked: &Checked) {
        stderr::diagnostics(&checked.diagnostics, &checked.sources);
    }

    fn note(&self, line: &str) {
        stderr::line(format_args!("{line}"));
    }

    fn stop_requests(&self) -> Result<Receiver<()>, Fault> {
        signals::stop_requests()
    }

    fn progress(&self) -> ShowProgress {
        let mut progress = Progress::new(Instant::now());
        Box::new(move |packets, parts| progress.show(packets, parts))
    }
}
