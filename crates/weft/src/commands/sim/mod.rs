//! `weft sim`: experiments in simulated networks.

mod flood;
mod no_silver_bullet;
mod plot;
mod pool;
mod program;
mod recorded;
mod report;
pub(crate) mod run;

use crate::cli::{Experiment, SenderName, SimArgs, SimOutput};
use crate::fault::Fault;
use crate::recording_file::{claim, write};
use crate::stderr;
use crate::stdout;
use std::path::Path;
use weft_core::hash;
use weft_sim::net::silver_bullet::newreno_of_2013;
use weft_sim::net::{Algorithm, SenderSpec};

/// Runs the experiment of `weft sim`.
pub(crate) fn run(args: &SimArgs) -> Result<(), Fault> {
    match &args.experiment {
        Experiment::NoSilverBullet(args) => no_silver_bullet::run(args),
        Experiment::Run(args) => run::run(args),
        Experiment::Flood(args) => flood::run(args),
    }
}

impl SimOutput {
    /// Tests that the output files can be written, so that the user learns it before the work and not after it.
    fn claim_files(&self, record: Option<&Path>) -> Result<(), Fault> {
        self.svg.as_deref().into_iter().chain(record).try_for_each(claim)
    }

    /// Writes the requested outputs: the recording, the picture, and JSON or text.
    fn write_all(
        &self,
        (record, recorded): (Option<&Path>, &str),
        picture: impl FnOnce() -> String,
        data: impl FnOnce() -> serde_json::Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), Fault> {
        if let Some(path) = record {
            write(path, recorded)?;
        }
        if let Some(path) = &self.svg {
            write(path, &picture())?;
        }
        let text = if self.json { format!("{:#}\n", data()) } else { text() };
        stdout::print(&text)
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
fn report_missing_seeds(done: u32, wanted: u32) -> Result<(), Fault> {
    if done == 0 {
        return Err(Fault::environment("stopped before one seed was done"));
    }
    if done < wanted {
        stderr::line(format_args!("weft: stopped after {done} of {wanted} seeds; the figures are of these"));
    }
    Ok(())
}

/// The senders of a name. Those that are not from the paper use other packet sizes.
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
