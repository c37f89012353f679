//! The command line.

use crate::commands::link::setting::Settings;
use crate::commands::link::spec;
use crate::log::{Format, Level};
use crate::memory::MemoryLimit;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use weft_io::{BUSY_POLL_MAX, COALESCE};

/// A full-stack, application-defined network.
#[derive(Parser)]
#[command(
    name = "weft",
    version,
    about = "A full-stack, application-defined network",
    disable_help_subcommand = false,
    after_help = "Try:      weft demo\n\
                  Write:    weft check network.weft        weft fmt network.weft          weft explain network.weft\n\
                  Edit:     weft lsp, which editors start: see editors/README.md\n\
                  Run:      weft run network.weft          weft apply network.weft\n\
                  Look:     weft status                    weft top\n\
                  Tables:   weft query 'SELECT ...'        weft load TABLE rows.csv\n\
                  Gates:    weft compile queue.weft --target verilog\n\
                  Try out:  weft replay network.weft --in yesterday.pcap\n\
                  \u{20}         weft generate network.weft --with vxlan --out random.pcap\n\
                  Simulate: weft sim run queue.weft --queue fq_codel --flows bulk=2,rpc=4\n\
                  Links:    weft link emulate --rate 15mbit --delay 30ms --queue fq_codel -- COMMAND\n\
                  \u{20}         weft link record wan --for 10s\n\
                  Measure:  weft bench elements            weft bench rpc\n\n\
                  Exit status: 0 done, 1 the input is at fault, 2 usage, 3 the environment is at fault."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Look for `.proto` files in this folder too; may be given several times
    #[arg(short = 'I', long = "proto-path", value_name = "DIR", global = true)]
    pub(crate) proto_paths: Vec<String>,
}

impl Cli {
    /// The command line of this process; it ends with what is wrong with it, or what was asked about it.
    pub(crate) fn of_process() -> Self {
        Self::parse_from(with_negative_values(std::env::args_os()))
    }
}

/// In front of a `--`, `--delay -5ms` is `--delay=-5ms`: so the option can say what it takes, where the parser would
/// look for one that is called `-5` and send people behind the `--`.
fn with_negative_values(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let (mut is_over, mut takes_value) = (false, false);
    for arg in args {
        let bytes = arg.as_encoded_bytes();
        let is_negative = matches!(bytes, [b'-', b'0'..=b'9', ..]);
        is_over |= bytes == b"--";
        let may_take = bytes.starts_with(b"--") && !bytes.contains(&b'=');
        match joined.last_mut() {
            Some(option) if takes_value && is_negative && !is_over => {
                option.push("=");
                option.push(arg);
            }
            _ => joined.push(arg),
        }
        takes_value = may_take;
    }
    joined
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the example application through a network, and change the network in the middle
    Demo(DemoArgs),
    /// Check a program and say what is wrong with it
    Check(CheckArgs),
    /// Make gates of a queue: a module in Verilog
    Compile(CompileArgs),
    /// Tell what each element does, in which order they run, and why
    Explain(ExplainArgs),
    /// Format programs
    Fmt(FmtArgs),
    /// Serve an editor: a language server on standard input and output
    Lsp(LspArgs),
    /// Run a network: controller and data plane in one process
    Run(RunArgs),
    /// Change a running network without losing a call
    Apply(ApplyArgs),
    /// Show what a running network does
    Status(StatusArgs),
    /// Ask the tables of a running network, and change their rows
    Query(QueryArgs),
    /// Put the rows of a CSV file into a table of a running network
    Load(LoadArgs),
    /// Turn a firewall list of nftables or iptables into rows of the library's ruleset
    Import(ImportArgs),
    /// Watch what a running network does, until `q` is pressed
    Top(TopArgs),
    /// Run the packets of captures through chains, and tell what these do with them
    Replay(ReplayArgs),
    /// Make random packets of the wire formats of a program, and see whether they are read as they were built
    Generate(GenerateArgs),
    /// Run an experiment in a simulated network
    Sim(SimArgs),
    /// Try programs behind a link of another rate, delay and queue
    Link(LinkArgs),
    /// Measure
    Bench(crate::bench::BenchArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
    #[command(flatten)]
    Hidden(crate::bench::HiddenCommand),
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft check network.weft\n  weft check --cost network.weft")]
pub(crate) struct CheckArgs {
    /// The file that the program begins with; `-` is standard input
    pub(crate) file: String,
    /// Give the diagnostics, and with --cost the costs, as data
    #[arg(long)]
    pub(crate) json: bool,
    /// Show what each element costs at worst, operations and memory, and each handler of a queue, and how long headers
    /// are
    #[arg(long)]
    pub(crate) cost: bool,
    /// Refuse a program whose state may take more memory than this, as in `2 GiB`
    #[arg(long, value_name = "SIZE", value_parser = MemoryLimit::of_option)]
    pub(crate) memory: Option<u64>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft compile library/queues/codel.weft --target verilog -o gates\n  \
                        weft compile library/queues/srpt.weft --target verilog --entries 16 --remaining-bits 16")]
pub(crate) struct CompileArgs {
    /// The file that the program begins with
    pub(crate) file: String,
    /// What to make
    #[arg(long, value_enum)]
    pub(crate) target: Target,
    /// The queue; if it is the only one, it need not be named
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Make the tree of comparators for the ranks of so many packets or partitions instead: a power of two
    #[arg(long, value_name = "N")]
    pub(crate) entries: Option<u32>,
    /// Bits of times in nanoseconds; 48 are 78 hours
    #[arg(long, default_value_t = 63, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=63))]
    pub(crate) time_bits: u32,
    /// Bits of lengths of packets
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) len_bits: u32,
    /// Bits of p.remaining
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=63))]
    pub(crate) remaining_bits: u32,
    /// Write NAME.v into this folder; without it, to standard output
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// Verilog-2001
    Verilog,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft explain network.weft\n  weft explain network.weft shop --json\n  \
                        weft explain network.weft shop --admin 127.0.0.1:9901 --svg shop.svg")]
pub(crate) struct ExplainArgs {
    /// The file that the program begins with
    pub(crate) file: String,
    /// The chain, link or queue to be explained; without one, all chains and links are
    pub(crate) name: Option<String>,
    /// What belongs to another command, so that it can be named
    #[arg(hide = true)]
    pub(crate) rest: Vec<String>,
    /// Show all that the plans follow from as well: what elements do, which may change places and why others may not,
    /// tables, headers
    #[arg(long)]
    pub(crate) full: bool,
    /// Give all of it as data
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the plans of the chains into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<String>,
    /// Write the plans of the chains into this file as a graph for Graphviz
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<String>,
    /// Ask the node with this admin endpoint what its elements took and ended, and plan by that
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<SocketAddr>,
    /// The file with the node's token; by default where `weft run` of this user leaves it
    #[arg(long, value_name = "FILE", requires = "admin")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft fmt network.weft\n  weft fmt --check *.weft")]
pub(crate) struct FmtArgs {
    /// The files, or folders of them; they are rewritten in place. `-` is standard input, formatted to standard output
    #[arg(required = true)]
    pub(crate) files: Vec<String>,
    /// Change nothing; say which files would change, and exit with 1 if any would
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the formatted text instead of rewriting the file
    #[arg(long, conflicts_with = "check")]
    pub(crate) stdout: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  nvim -c 'lua vim.lsp.enable(\"weft\")' network.weft\n  \
                  code --install-extension weft.vsix\n\n\
                  Editors start it by themselves; how to set them up stands in editors/README.md.")]
pub(crate) struct LspArgs {
    /// Talk over standard input and output, which is the only way; editors pass it by habit
    #[arg(long, hide = true)]
    pub(crate) stdio: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  weft run network.weft\n  weft run network.weft --workers 4 --admin 127.0.0.1:9902"
)]
pub(crate) struct RunArgs {
    /// The file that the program begins with
    pub(crate) file: String,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// How long calls under way may go on when the node is told to stop, in seconds
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) grace: f64,
}

#[derive(Args)]
pub(crate) struct NodeArgs {
    /// Worker threads: so many for calls, and so many for packets where the program has ports
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// How long a worker may look for the next event before it sleeps, if they come that soon; 0 to sleep at once
    #[arg(long, default_value_t = BUSY_POLL_US, value_name = "MICROSECONDS")]
    #[arg(value_parser = clap::value_parser!(u16).range(..=10_000))]
    pub(crate) busy_poll: u16,
    /// How long a worker rests behind eight packets or more that came together, so that the next do so as well; 0 for
    /// the least latency, and the most CPU
    #[arg(long, default_value_t = COALESCE_US, value_name = "MICROSECONDS")]
    #[arg(value_parser = clap::value_parser!(u16).range(..=10_000))]
    pub(crate) coalesce: u16,
    /// Where the admin endpoint listens
    #[arg(long, default_value = "127.0.0.1:9901", value_name = "ADDRESS")]
    pub(crate) admin: SocketAddr,
    /// Let the admin endpoint listen on an address that other machines reach
    #[arg(long)]
    pub(crate) admin_anywhere: bool,
    /// Have the admin endpoint ask for the token at /metrics, too: it has what sinks TO METRICS say
    #[arg(long)]
    pub(crate) private_metrics: bool,
    /// Give up all capabilities once the network runs: later versions then listen on no port below 1024, and a device
    /// that has gone is not opened again
    #[arg(long)]
    pub(crate) drop_all: bool,
    /// How code runs
    #[arg(long, value_enum, default_value_t = BackendName::Jit)]
    pub(crate) backend: BackendName,
    /// The most memory that the state of a program may take, as in `2 GiB`; by default what the control group of the
    /// process has
    #[arg(long, value_name = "SIZE", value_parser = MemoryLimit::of_option)]
    pub(crate) memory: Option<u64>,
    /// What chance follows from: what rand() draws, where tables place keys. By default it is new at each start; with a
    /// seed that others know, they can choose keys that slow tables down
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How the node's log is written, on standard error
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub(crate) log: Format,
    /// What the log leaves out: all that matters less
    #[arg(long, value_enum, default_value_t = Level::Info, value_name = "LEVEL")]
    pub(crate) log_level: Level,
    /// Show the live table, on standard error, even if that is not a terminal, or never
    #[arg(long, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub(crate) table: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// Machine code
    Jit,
    /// The interpreter: slow, and the meaning of the language
    Interp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

/// [`BUSY_POLL_MAX`] in microseconds.
const BUSY_POLL_US: u16 = (BUSY_POLL_MAX.0 / 1000) as u16;
/// [`COALESCE`] in microseconds.
const COALESCE_US: u16 = (COALESCE.0 / 1000) as u16;

/// Where a running node is.
#[derive(Args)]
pub(crate) struct AdminArgs {
    /// Where the node's admin endpoint is
    #[arg(long, default_value = "127.0.0.1:9901", value_name = "ADDRESS")]
    pub(crate) admin: SocketAddr,
    /// The file with the node's token; by default where `weft run` of this user leaves it
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft apply network.weft\n  weft apply --dry-run network.weft --json")]
pub(crate) struct ApplyArgs {
    /// The file that the program begins with
    pub(crate) file: String,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Do on the node all that a change does but the change, and say what it would be
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Refuse a program whose state may take more memory than this, as in `2 GiB`; the node has its own limit besides
    #[arg(long, value_name = "SIZE", value_parser = MemoryLimit::of_option)]
    pub(crate) memory: Option<u64>,
    /// Give the result as data
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft replay network.weft --chain edge --in yesterday.pcap\n  \
                        weft replay network.weft --in lan=inside.pcap --in wan=outside.pcap\n  \
                        weft replay network.weft --in yesterday.pcap --out left.pcap -o json\n  \
                        weft replay network.weft --in yesterday.pcap --annotate --out told.pcapng")]
pub(crate) struct ReplayArgs {
    /// The file that the program begins with
    pub(crate) file: String,
    /// The chain; with one chain on ports, or where each capture names its port, it need not be named
    #[arg(long, value_name = "NAME")]
    pub(crate) chain: Option<String>,
    /// A capture, pcap or pcapng, and the port at which its packets arrive; may be given several times, once for each
    /// port: packets arrive in the order of their times, and all chains run
    #[arg(long = "in", value_name = "[PORT=]FILE", required = true)]
    pub(crate) inputs: Vec<String>,
    /// The port at which packets of a FILE without PORT arrive; by default the first of the chain
    #[arg(long, value_name = "NAME")]
    pub(crate) port: Option<String>,
    /// Write what leaves into this file: pcap if it ends in .pcap, else pcapng with an interface for each port
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<String>,
    /// Write what leaves into this folder, a pcapng file for each port
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub(crate) out_dir: Option<String>,
    /// Write each packet that arrives into the file of --out, with what became of it as a comment
    #[arg(long, requires = "out")]
    pub(crate) annotate: bool,
    /// Do what a device was to do to packets that a host captured as it sent them: fill in the checksum of IPv4 and
    /// a length of 0, and take other checksums for right
    #[arg(long)]
    pub(crate) trust_checksums: bool,
    /// As fast as it goes, by the clock of the capture, or as it was recorded
    #[arg(long, value_enum, default_value_t = Speed::Full)]
    pub(crate) speed: Speed,
    /// Stop after so many packets
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Ask tables at the end, as `weft query` does of a node; may be given several times
    #[arg(long, value_name = "SELECT")]
    pub(crate) query: Vec<String>,
    /// Write the rows that elements send to their sinks into this file, a line for each; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) rows: Option<String>,
    /// As a table or as data
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// How code runs
    #[arg(long, value_enum, default_value_t = BackendName::Jit)]
    pub(crate) backend: BackendName,
    /// What rand() draws from
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft generate network.weft --out random.pcap\n  \
                        weft generate library/protocols/all.weft --with vxlan --count 100 --out vxlan.pcap\n  \
                        weft generate sensor.weft --with sensor -o json")]
pub(crate) struct GenerateArgs {
    /// The file that the program begins with
    pub(crate) file: String,
    /// The protocol that packets begin with; by default `ethernet`
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) first: Option<String>,
    /// Only packets that have such a layer; may be given several times
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) with: Vec<String>,
    /// How many
    #[arg(long, default_value_t = 1000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) count: u64,
    /// Keep those that break a rule of a wire format, and let the last header of a packet name one that is not there
    #[arg(long)]
    pub(crate) malformed: bool,
    /// Write them into this file: pcap if it ends in .pcap, else pcapng
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<String>,
    /// What the packets are drawn from: the same seed, the same packets
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// As a table or as data
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Speed {
    Full,
    Recorded,
}

#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) experiment: Experiment,
}

#[derive(Subcommand)]
pub(crate) enum Experiment {
    /// A queue program, or several beside each other, in a network with flows: throughput, completion, waiting, drops
    Run(Box<SimRunArgs>),
    /// No scheduling and queue management is best for all: three configurations, three applications, two links
    NoSilverBullet(SilverBulletArgs),
    /// What queues leave to others beside a flow that sends twice what the link takes
    Flood(FloodArgs),
}

#[derive(Args)]
#[command(
    after_help = "Bulk flows have no end, and want throughput. Interactive ones have none either, and want\n\
                  throughput over delay. A web flow is one page after the other, with silences of 0.2 s\n\
                  between; an rpc flow is 20 calls of 4 KiB a second. Packets say what they want: p.class is\n\
                  1 of bulk, 2 of web and rpc, 3 of interactive flows.\n\n\
                  Examples:\n  \
                  weft sim run --queue fifo --queue fq_codel --flows bulk=2,rpc=4\n  \
                  weft sim run mine.weft --rate 40mbit --delay 20ms --for 30s --sender newreno\n  \
                  weft sim run mine.weft --queue mine --queue \"codel (target = '10 ms')\" --lte"
)]
pub(crate) struct SimRunArgs {
    /// The program; the bottleneck runs the last queue that it creates, if --queue names none
    pub(crate) file: Option<String>,
    /// A queue, of the program or else of the library, with its arguments if it is to have others; or another file, of
    /// which it is the last. May be given up to eight times, and queues are compared. Without a program and a name it
    /// is fifo
    #[arg(long = "queue", value_name = "NAME")]
    pub(crate) queues: Vec<String>,
    /// How many flows of each workload: bulk, web, interactive or rpc
    #[arg(long, value_name = "WORKLOAD=N", value_delimiter = ',', default_value = "bulk=2,web=2,rpc=2",
          value_parser = crate::commands::sim::run::flows)]
    pub(crate) flows: Vec<(WorkloadName, u32)>,
    /// What the network looks like
    #[arg(long, value_enum, default_value_t = TopologyName::Dumbbell)]
    pub(crate) topology: TopologyName,
    /// Bits a second of each link
    #[arg(long, value_name = "RATE", default_value = "15mbit", value_parser = spec::rate)]
    pub(crate) rate: u64,
    /// Links send when this trace, of Mahimahi's format, says so
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "lte"])]
    pub(crate) trace: Option<PathBuf>,
    /// Links are like those of LTE, up to 12 Mbit/s, made from the seed
    #[arg(long, conflicts_with = "rate")]
    pub(crate) lte: bool,
    /// How long each link is, one way
    #[arg(long, value_name = "TIME", default_value = "75ms", value_parser = spec::delay)]
    pub(crate) delay: u64,
    /// How much longer a packet may be on each link, by chance; each packet draws its own, and may overtake others
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = spec::delay)]
    pub(crate) jitter: u64,
    /// The share of packets that each link loses by chance
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = spec::share)]
    pub(crate) loss: f64,
    /// The share of packets that others overtake by chance: they take a tenth of the delay more
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = spec::share)]
    pub(crate) reorder: f64,
    /// What the TCP senders are
    #[arg(long, value_enum, default_value_t = SenderName::Cubic)]
    pub(crate) sender: SenderName,
    /// Senders say that their packets can be marked, and heed marks
    #[arg(long)]
    pub(crate) ecn: bool,
    /// Simulated time of each seed, an hour at most
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = spec::simulated_span)]
    pub(crate) span: u64,
    /// How many seeds; figures are of all of them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) seeds: u32,
    /// The first seed; the others follow
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1 << 32))]
    pub(crate) seed: u64,
    /// Write what each queue was asked in the first minute of the first seed into this file, for `weft link show` and
    /// `weft link explain`; links have the names of the queues
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: SimOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopologyName {
    /// One bottleneck that all flows pass
    Dumbbell,
    /// Three links in a row: of four flows of a workload the first passes all, each of the others one
    ParkingLot,
    /// Switches of four ports that connect 16 hosts; each flow goes between two of them that chance picks
    FatTree,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkloadName {
    Bulk,
    Web,
    Interactive,
    Rpc,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft sim no-silver-bullet --quick\n  \
                        weft sim no-silver-bullet --traces traces/ --svg no-silver-bullet.svg")]
pub(crate) struct SilverBulletArgs {
    /// Four seeds, and a fifth of the time; the figures are rougher
    #[arg(long)]
    pub(crate) quick: bool,
    /// How many seeds of each comparison are run; by default as many as the paper's authors ran
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) seeds: Option<u32>,
    /// Take the links whose rate changes from the traces in this folder, files whose names end in .down or .up, in
    /// turn; by default links like LTE are made, one for each seed
    #[arg(long, value_name = "FOLDER")]
    pub(crate) traces: Option<PathBuf>,
    /// Beside the paper's configurations run the last queue that this file creates; by default one that gives each
    /// application what it asks for
    #[arg(long, value_name = "FILE")]
    pub(crate) queue: Option<String>,
    /// What the TCP senders are
    #[arg(long, value_enum, default_value_t = SenderName::Paper)]
    pub(crate) sender: SenderName,
    /// Write what the queue program was asked in the first minute of the first seed of each comparison into this file,
    /// for `weft link show` and `weft link explain`; the links have the names of the comparisons, 1a to 3b
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: SimOutput,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  weft sim flood\n  weft sim flood --queue fq_codel --queue mine.weft --rate 40mbit"
)]
pub(crate) struct FloodArgs {
    /// A queue of the library, with its arguments if it is to have others; or a file, of which it is the last. May be
    /// given several times; by default all of the library
    #[arg(long = "queue", value_name = "NAME")]
    pub(crate) queues: Vec<String>,
    /// Bits a second of the link
    #[arg(long, value_name = "RATE", default_value = "10mbit", value_parser = spec::rate)]
    pub(crate) rate: u64,
    /// Give it as data
    #[arg(long)]
    pub(crate) json: bool,
}

/// What an experiment tells, and how it is run.
#[derive(Args)]
pub(crate) struct SimOutput {
    /// Give it as data: the same bytes for the same seeds
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Threads; by default as many as there are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SenderName {
    /// The paper's: NewReno that repairs one loss a round trip
    Paper,
    /// NewReno with selective acknowledgements
    Newreno,
    Cubic,
    /// One that models its path, like BBR
    BbrLike,
}

#[derive(Args)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    pub(crate) action: LinkAction,
}

#[derive(Subcommand)]
pub(crate) enum LinkAction {
    /// Run a command, or a shell, behind a link with a rate, a delay, loss or a trace, and a queue program
    Emulate(Box<EmulateArgs>),
    /// Record what the queue of a link of a running node is asked, for a while: a link of packets or of calls
    Record(LinkRecordArgs),
    /// Show a recording: what waited, how long, and what was dropped, over time
    Show(LinkShowArgs),
    /// Tell of a packet, or call, of a recording which line dropped it or let it go, and with what values
    Explain(LinkExplainArgs),
}

#[derive(Args)]
#[command(
    after_help = "The link goes on as it was; while nothing is recorded, that it could be costs nothing.\n\n\
                  Examples:\n  \
                  weft link record wan --for 10s\n  \
                  weft link record wan --for 2min -o wan.rec && weft link show wan.rec --svg wan.svg\n  \
                  weft link record tenants --for 30s && weft link explain tenants.rec"
)]
pub(crate) struct LinkRecordArgs {
    /// The link, as the program calls it: of a port, a cluster or a listener
    pub(crate) link: String,
    /// For so long, 10min at most; Ctrl-C ends it before
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = spec::span)]
    pub(crate) span: u64,
    /// The file; by default the name of the link with .rec
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Packets, or calls, at most; what comes then is counted
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) packets: u64,
    /// MiB at most that the node keeps for it, 256 at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) mib: u64,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Tell how it went as data
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  weft link show run.rec\n  weft link show run.rec --link down --svg down.svg"
)]
pub(crate) struct LinkShowArgs {
    /// What `weft link record`, or `--record` of another command, has written
    pub(crate) file: PathBuf,
    /// The link; by default that which dropped most
    #[arg(long, value_name = "NAME")]
    pub(crate) link: Option<String>,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Give it as data: each packet, or call, when it came, when it left and how
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  weft link explain run.rec\n  weft link explain run.rec 1523 --link down"
)]
pub(crate) struct LinkExplainArgs {
    /// What `weft link record`, or `--record` of another command, has written
    pub(crate) file: PathBuf,
    /// The number of the packet, or call, on its link, the first is 1; without one, what was dropped is listed
    #[arg(value_name = "N")]
    pub(crate) packet: Option<u64>,
    /// The link; by default that which dropped most
    #[arg(long, value_name = "NAME")]
    pub(crate) link: Option<String>,
    /// Give it as data
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(
    override_usage = "weft link emulate [OPTIONS] [-- COMMAND...]",
    after_help = "Up is from the command to the world, down is back. An option without a direction is for both.\n\
                  The command finds the address of the world in WEFT_WORLD, 100.64.0.1 if it is the only link,\n\
                  and that of IPv6 in WEFT_WORLD6, fd64:7766:7400::1.\n\
                  Needed: root, or user namespaces; without root the world is a namespace of its own, too, in\n\
                  which --far runs what the command is to talk to.\n\n\
                  Examples:\n  \
                  weft link emulate --rate 15mbit --delay 75ms --queue fq_codel -- curl http://100.64.0.1:8000/\n  \
                  weft link emulate --down-trace verizon.down --up-trace verizon.up --delay 20ms --loss 1%\n  \
                  weft link emulate --rate 10mbit --loss-bursts 1%,25% --schedule train.txt -- ./client\n  \
                  weft link emulate --rate 10mbit --queue my.weft --far 'iperf3 -s -1' -- iperf3 -c 100.64.0.1"
)]
pub(crate) struct EmulateArgs {
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// How the link changes while it runs: a line is a time and what is another from then on, in the words of the
    /// options, `5s rate=1mbit up-loss=2%`
    #[arg(long, value_name = "FILE")]
    pub(crate) schedule: Option<PathBuf>,
    /// Run this at the other end, by `sh -c`, until the command has ended
    #[arg(long, value_name = "COMMAND")]
    pub(crate) far: Option<String>,
    /// What chance follows from: which packets are lost, what queues draw. Neighbouring seeds are independent runs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write what both queues were asked into this file, for `weft link show` and `weft link explain`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Give the summary as data, on standard output behind what the command wrote
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments; without one, a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft status\n  weft status --json --admin 127.0.0.1:9902")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Give it as data
    #[arg(long)]
    pub(crate) json: bool,
    /// As a table or as data
    #[arg(short, long, value_enum, default_value_t = Output::Table, conflicts_with = "json")]
    pub(crate) output: Output,
    /// Print the text of the running program instead
    #[arg(long)]
    pub(crate) program: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
                        weft query 'SELECT * FROM edge.firewall.rules WHERE NOT allow ORDER BY rank LIMIT 20'\n  \
                        weft query 'UPDATE edge.firewall.rules SET allow = FALSE WHERE rank = 30' -o json\n  \
                        weft query \"ALTER LINK wan USE QUEUE codel (target = '10 ms') KEEP PACKETS\"\n  \
                        weft query --file rules.weft")]
pub(crate) struct QueryArgs {
    /// SELECT, INSERT, UPDATE and DELETE with a semicolon between, or ALTER LINK; without any, tables are listed
    pub(crate) text: Option<String>,
    /// Read the statements from this file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub(crate) file: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// As a table or as data
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  nft list ruleset | weft import - --out-port lan,wan > rules.weft\n  \
                        weft import rules.v4 --table edge.ruleset.rules --keep-going > rules.weft")]
pub(crate) struct ImportArgs {
    /// What `nft list ruleset`, `iptables-save` or `ip6tables-save` printed; `-` is standard input
    pub(crate) file: String,
    /// The table that the rows are for: that of a stage of `ruleset`
    #[arg(long, default_value = "edge.ruleset.rules", value_name = "NAME")]
    pub(crate) table: String,
    /// Whose rules: those of the base chains of this hook, and of the chains that they jump to
    #[arg(long, default_value = "forward", value_parser = ["input", "forward", "output"])]
    pub(crate) hook: String,
    /// All interfaces by which packets leave, `lan,wan`; a rule for all but some of them, or for `eth*`, needs it
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) out_port: Vec<String>,
    /// All interfaces at which packets arrive, `lan,wan`; a rule for all but some of them, or for `eth*`, needs it
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) in_port: Vec<String>,
    /// What the port of an interface is called in the program, `br-lan=lan,eth0.2=wan`; without it as the interface
    #[arg(long, value_name = "INTERFACE=PORT", value_delimiter = ',')]
    pub(crate) port: Vec<String>,
    /// How the list is written; by default what it looks like
    #[arg(long, value_enum)]
    pub(crate) format: Option<ListFormat>,
    /// Leave out rules that are not understood, and import the others
    #[arg(long)]
    pub(crate) keep_going: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    Nft,
    Iptables,
    Ip6tables,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft load edge.firewall.rules rules.csv\n  \
                        weft load core.router.routes routes.csv --replace")]
pub(crate) struct LoadArgs {
    /// The table: `chain.instance.table`, or the name of a shared table
    pub(crate) table: String,
    /// The rows: the first line names the columns; `-` is standard input
    pub(crate) file: String,
    /// Rows that are there already are replaced; else they are a fault
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// As a line or as data
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft top\n  weft top --every 5 --json")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) every: f64,
    /// Give each look as data, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft demo\n  weft demo --forever --in-flight 16")]
pub(crate) struct DemoArgs {
    /// Stay up until it is stopped
    #[arg(long)]
    pub(crate) forever: bool,
    /// How long the demo runs, in seconds
    #[arg(
        long,
        default_value_t = 20.0,
        value_name = "SECONDS",
        value_parser = seconds,
        conflicts_with = "forever"
    )]
    pub(crate) seconds: f64,
    /// Calls that the front end keeps in flight
    #[arg(
        long,
        default_value_t = 128,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    pub(crate) in_flight: u32,
    /// The folder of the example
    #[arg(long, value_name = "FOLDER")]
    pub(crate) example: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  weft completions bash > ~/.local/share/bash-completion/completions/weft\n  \
                  weft completions zsh > ~/.zfunc/_weft")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft man run | man -l -\n  weft man > ~/.local/share/man/man1/weft.1")]
pub(crate) struct ManArgs {
    /// The command whose page it is; without one, that of `weft` itself
    pub(crate) command: Option<String>,
    /// Print the page of the book instead
    #[arg(long, conflicts_with = "command")]
    pub(crate) markdown: bool,
}

/// A time in seconds, no more than ten years.
fn seconds(text: &str) -> Result<f64, String> {
    const SECONDS_MAX: f64 = 10.0 * 365.25 * 86_400.0;
    let seconds: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if (0.0..=SECONDS_MAX).contains(&seconds) {
        return Ok(seconds);
    }
    Err(format!("a time is 0 to {SECONDS_MAX} seconds"))
}
