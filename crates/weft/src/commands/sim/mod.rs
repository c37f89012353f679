//! `weft sim`: experiments in simulated networks.

mod no_silver_bullet;
mod plot;
mod pool;
mod program;
mod recorded;
mod report;
pub(crate) mod run;

use crate::cli::{Experiment, SimArgs};
use crate::fault::Fault;

pub(crate) fn run(args: &SimArgs) -> Result<(), Fault> {
    match &args.experiment {
        Experiment::NoSilverBullet(args) => no_silver_bullet::run(args),
        Experiment::Run(args) => run::run(args),
    }
}
