//! `weft sim`: experiments in simulated networks.

mod no_silver_bullet;
mod plot;
mod pool;
mod program;
mod recorded;
mod report;
pub(crate) mod run;

use crate::cli::{Experiment, SenderName, SimArgs};
use crate::fault::Fault;
use weft_sim::net::silver_bullet::newreno_of_2013;
use weft_sim::net::{Algorithm, SenderSpec};

pub(crate) fn run(args: &SimArgs) -> Result<(), Fault> {
    match &args.experiment {
        Experiment::NoSilverBullet(args) => no_silver_bullet::run(args),
        Experiment::Run(args) => run::run(args),
    }
}

/// The senders of a name. Those that are not the paper's have packets of the sizes of others.
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
