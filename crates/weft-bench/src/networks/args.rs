//! The options of `weft sim`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use weft_control::units;

/// The options of `weft sim`.
#[derive(Args)]
pub struct SimArgs {
    #[command(subcommand)]
    /// The experiment.
    pub experiment: Experiment,
}

#[derive(Subcommand)]
pub enum Experiment {
    /// Compare queues in a network with flows: throughput, completion, waiting, drops
    Run(Box<SimRunArgs>),
    /// Reproduce "No silver bullet": three queue configurations, three applications, two links
    NoSilverBullet(SilverBulletArgs),
    /// Compare what queues leave to other flows beside a flood of twice the link rate
    Flood(FloodArgs),
}

#[derive(Args)]
#[command(
    after_help = "Bulk flows send without end and want throughput. Interactive flows send without end and want\n\
                  throughput over delay. A web flow sends pages, with pauses of 0.2 s on average. An rpc flow\n\
                  sends 20 calls of 4 KiB a second. p.class is 1 for bulk, 2 for web and rpc, 3 for interactive.\n\n\
                  Examples:\n  \
                  weft sim run --queue fifo --queue fq_codel --flows bulk=2,rpc=4\n  \
                  weft sim run mine.weft --rate 40mbit --delay 20ms --for 30s --sender newreno\n  \
                  weft sim run mine.weft --queue mine --queue \"codel (target = '10 ms')\" --lte"
)]
pub struct SimRunArgs {
    /// The program; without --queue its last queue runs
    pub file: Option<String>,
    /// A queue of the program or the library, with optional arguments; or another file, whose last queue is used. May
    /// be repeated up to eight times, to compare. Without a program the default is fifo
    #[arg(long = "queue", value_name = "NAME")]
    pub queues: Vec<String>,
    /// Number of flows per workload: bulk, web, interactive or rpc
    #[arg(long, value_name = "WORKLOAD=N", value_delimiter = ',', default_value = "bulk=2,web=2,rpc=2",
          value_parser = super::run::flows)]
    pub flows: Vec<(WorkloadName, u32)>,
    /// The network topology
    #[arg(long, value_enum, default_value_t = TopologyName::Dumbbell)]
    pub topology: TopologyName,
    /// Rate of each link in bits per second
    #[arg(long, value_name = "RATE", default_value = "15mbit", value_parser = units::rate)]
    pub rate: u64,
    /// Links follow this trace in Mahimahi's format
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "lte"])]
    pub trace: Option<PathBuf>,
    /// Synthetic LTE links of up to 12 Mbit/s, made from the seed
    #[arg(long, conflicts_with = "rate")]
    pub lte: bool,
    /// One-way delay of each link
    #[arg(long, value_name = "TIME", default_value = "75ms", value_parser = units::delay)]
    pub delay: u64,
    /// Random extra delay per packet and link, up to this; packets may overtake each other
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = units::delay)]
    pub jitter: u64,
    /// Random loss on each link
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = units::share)]
    pub loss: f64,
    /// Share of packets delayed by a tenth of the delay more, so that others overtake them
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = units::share)]
    pub reorder: f64,
    /// Congestion control of the TCP senders
    #[arg(long, value_enum, default_value_t = SenderName::Cubic)]
    pub sender: SenderName,
    /// Senders use ECN
    #[arg(long)]
    pub ecn: bool,
    /// Simulated time per seed, at most an hour
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = units::simulated_span)]
    pub span: u64,
    /// Number of seeds; figures cover all of them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: u32,
    /// The first seed; the others follow
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1 << 32))]
    pub seed: u64,
    /// Record each queue in the first minute of the first seed into this file, for `weft link show` and `weft link
    /// explain`; links are named after the queues
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub output: SimOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopologyName {
    /// One bottleneck for all flows
    Dumbbell,
    /// Three links in a row: of four flows of a workload the first crosses all, the others one each
    ParkingLot,
    /// 16 hosts behind four-port switches; flows between random pairs
    FatTree,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkloadName {
    Bulk,
    Web,
    Interactive,
    Rpc,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft sim no-silver-bullet --quick\n  \
                        weft sim no-silver-bullet --traces traces/ --svg no-silver-bullet.svg")]
pub struct SilverBulletArgs {
    /// Four seeds and a fifth of the time; less precise
    #[arg(long)]
    pub quick: bool,
    /// Number of seeds per comparison; by default that of the paper's authors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// Use the traces in this folder, files ending in .down or .up, in turn; by default synthetic LTE links, one per
    /// seed
    #[arg(long, value_name = "FOLDER")]
    pub traces: Option<PathBuf>,
    /// Also run the last queue of this file; by default the library's `objective`
    #[arg(long, value_name = "FILE")]
    pub queue: Option<String>,
    /// Congestion control of the TCP senders
    #[arg(long, value_enum, default_value_t = SenderName::Paper)]
    pub sender: SenderName,
    /// Record the queue program in the first minute of the first seed of each comparison into this file, for `weft link
    /// show` and `weft link explain`; links are named after the comparisons, 1a to 3b
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub output: SimOutput,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  weft sim flood\n  weft sim flood --queue fq_codel --queue mine.weft --rate 40mbit"
)]
pub struct FloodArgs {
    /// A library queue, with optional arguments; or a file, whose last queue is used. May be repeated; by default all
    /// library queues
    #[arg(long = "queue", value_name = "NAME")]
    pub queues: Vec<String>,
    /// Rate of the link in bits per second
    #[arg(long, value_name = "RATE", default_value = "10mbit", value_parser = units::rate)]
    pub rate: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What an experiment tells, and how it is run.
#[derive(Args)]
pub struct SimOutput {
    /// Print JSON: byte-identical for the same seeds
    #[arg(long)]
    pub json: bool,
    /// Draw an SVG picture into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Threads; by default one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SenderName {
    /// The paper's: NewReno, which repairs one loss per round trip
    Paper,
    /// NewReno with selective acknowledgements
    Newreno,
    Cubic,
    /// Model-based, like BBR
    BbrLike,
}
