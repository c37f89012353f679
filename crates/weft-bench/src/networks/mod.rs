//! `weft sim`: experiments in simulated networks.

mod args;
mod flood;
mod no_silver_bullet;
mod plot;
mod pool;
mod program;
mod recorded;
mod report;
mod run;

pub use args::SimArgs;
use args::{Experiment, SenderName, SimOutput};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use weft_control::check::Checked;
use weft_control::fault::Fault;
use weft_control::files::Files;
use weft_core::hash;
use weft_sim::net::silver_bullet::newreno_of_2013;
use weft_sim::net::{Algorithm, SenderSpec, Trace};

/// Shows progress: the packets so far, and the finished part with the whole.
pub type ShowProgress = Box<dyn FnMut(u64, (u64, Option<u64>))>;

/// The command that runs an experiment: its files, its terminal and its signals.
pub trait Console {
    /// The files of programs, with this text in place of the file of that name.
    fn files(&self, text: Option<(&str, String)>) -> Files;

    /// Tests that a program's file exists.
    ///
    /// # Errors
    /// It does not, or is no regular file.
    fn require(&self, path: &str) -> Result<(), Fault>;

    /// Reads a text of at most this many bytes.
    ///
    /// # Errors
    /// The file is missing, unreadable or too long.
    fn read(&self, path: &Path, bytes_max: u64) -> Result<String, Fault>;

    /// Tests that a file can be written, and creates it if it is missing.
    ///
    /// # Errors
    /// The file cannot be written.
    fn claim(&self, path: &Path) -> Result<(), Fault>;

    /// Writes a file.
    ///
    /// # Errors
    /// The file cannot be written.
    fn write(&self, path: &Path, text: &str) -> Result<(), Fault>;

    /// Prints the result.
    ///
    /// # Errors
    /// The output cannot be written.
    fn print(&self, text: &str) -> Result<(), Fault>;

    /// Prints the diagnostics of a check.
    fn diagnostics(&self, checked: &Checked);

    /// Prints a line about the work.
    fn note(&self, line: &str);

    /// The requests to stop.
    ///
    /// # Errors
    /// The system refuses a thread.
    fn stop_requests(&self) -> Result<Receiver<()>, Fault>;

    /// A display of the progress of long work.
    fn progress(&self) -> ShowProgress;
}

/// Runs the experiment of `weft sim`.
///
/// # Errors
/// A program or an option is wrong, or a file cannot be read or written.
pub fn run(args: &SimArgs, console: &dyn Console) -> Result<(), Fault> {
    match &args.experiment {
        Experiment::NoSilverBullet(args) => no_silver_bullet::run(args, console),
        Experiment::Run(args) => run::run(args, console),
        Experiment::Flood(args) => flood::run(args, console),
    }
}

/// The largest trace file, in bytes: more than the longest trace that the parser accepts.
pub const TRACE_BYTES_MAX: u64 = 256 << 20;

/// Reads the trace in a file.
fn read_trace(path: &Path, console: &dyn Console) -> Result<Arc<Trace>, Fault> {
    parse_trace(path, &console.read(path, TRACE_BYTES_MAX)?)
}

/// Parses the text of a trace; `path` is its file, for errors.
///
/// # Errors
/// It has a wrong line; the error names the line.
pub fn parse_trace(path: &Path, text: &str) -> Result<Arc<Trace>, Fault> {
    let trace = Trace::parse(text);
    trace.map(Arc::new).map_err(|error| Fault::Input(format!("{}: {error}", path.display())))
}

impl SimOutput {
    /// Tests that the output files can be written, so that the user learns it before the work and not after it.
    fn claim_files(&self, record: Option<&Path>, console: &dyn Console) -> Result<(), Fault> {
        self.svg.as_deref().into_iter().chain(record).try_for_each(|path| console.claim(path))
    }

    /// Writes the requested outputs: the recording, the picture, and JSON or text.
    fn write_all(
        &self,
        console: &dyn Console,
        (record, recorded): (Option<&Path>, &str),
        picture: impl FnOnce() -> String,
        data: impl FnOnce() -> serde_json::Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), Fault> {
        if let Some(path) = record {
            console.write(path, recorded)?;
        }
        if let Some(path) = &self.svg {
            console.write(path, &picture())?;
        }
        let text = if self.json { format!("{:#}\n", data()) } else { text() };
        console.print(&text)
    }
}

/// The seed of a link's queue, from the seed of the run and the number of the link.
fn queue_seed(seed: u64, link: u64) -> u64 {
    hash::stream(seed, "queue of link", link)
}

/// Reports that an experiment was stopped before all seeds were done.
///
/// # Errors
/// No seed was done.
fn report_missing_seeds(done: u32, wanted: u32, console: &dyn Console) -> Result<(), Fault> {
    if done == 0 {
        return Err(Fault::environment("stopped before one seed was done"));
    }
    if done < wanted {
        console.note(&format!("weft: stopped after {done} of {wanted} seeds; the figures are of these"));
    }
    Ok(())
}

/// The senders of a name. Senders from outside of the paper use the packet sizes of `sizes`.
fn sender(name: SenderName, sizes: &SenderSpec) -> SenderSpec {
    let of_today = |algorithm| SenderSpec {
        algorithm,
        payload: sizes.payload,
        header: sizes.header,
        ..SenderSpec::default()
    };
    match name {
        SenderName::Paper => newreno_of_2013(),
        SenderName::Newreno => of_today(Algorithm::NewReno),
        SenderName::Cubic => of_today(Algorithm::Cubic),
        SenderName::BbrLike => of_today(Algorithm::BbrLike),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use weft_api::Bundle;

    /// A console without files and without a terminal.
    pub(super) struct TestConsole;

    impl Console for TestConsole {
        fn files(&self, text: Option<(&str, String)>) -> Files {
            let files = text.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
            Files::in_bundle(&Bundle { files, ..Bundle::default() })
        }

        fn require(&self, _: &str) -> Result<(), Fault> {
            Ok(())
        }

        fn read(&self, path: &Path, _: u64) -> Result<String, Fault> {
            Err(Fault::environment(format!("there is no {}", path.display())))
        }

        fn claim(&self, _: &Path) -> Result<(), Fault> {
            Ok(())
        }

        fn write(&self, _: &Path, _: &str) -> Result<(), Fault> {
            Ok(())
        }

        fn print(&self, _: &str) -> Result<(), Fault> {
            Ok(())
        }

        fn diagnostics(&self, checked: &Checked) {
            assert!(checked.diagnostics.is_empty(), "{:?}", checked.diagnostics);
        }

        fn note(&self, _: &str) {}

        fn stop_requests(&self) -> Result<Receiver<()>, Fault> {
            Ok(channel().1)
        }

        fn progress(&self) -> ShowProgress {
            Box::new(|_, _| {})
        }
    }
}
