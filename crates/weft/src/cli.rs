//! The command line: commands, options and their help texts.

use crate::commands::link::setting::Settings;
use crate::log::{Format, Level};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use weft_control::memory::MemoryLimit;
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
                  Edit:     weft lsp, started by editors: see editors/README.md\n\
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
                  Exit status: 0 success, 1 faulty input, 2 usage, 3 fault of the environment."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Also search this folder for `.proto` files; may be repeated
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
    /// Run the example application through a network, and update the network under load
    Demo(DemoArgs),
    /// Check a program and report its faults
    Check(CheckArgs),
    /// Compile a queue into a hardware module in Verilog
    Compile(CompileArgs),
    /// Show the effects of each element, the order of execution, and the reasons
    Explain(ExplainArgs),
    /// Format programs
    Fmt(FmtArgs),
    /// Run a language server for editors, on standard input and output
    Lsp(LspArgs),
    /// Run a network: controller and data plane in one process
    Run(RunArgs),
    /// Update a running network without losing calls
    Apply(ApplyArgs),
    /// Show the status of a running network
    Status(StatusArgs),
    /// Query and change the tables of a running network
    Query(QueryArgs),
    /// Load a CSV file into a table of a running network
    Load(LoadArgs),
    /// Convert a list of nftables or iptables into rows of the library's ruleset
    Import(ImportArgs),
    /// Show the status of a running network continuously, until `q` is pressed
    Top(TopArgs),
    /// Replay captures through chains, and report the outcome
    Replay(ReplayArgs),
    /// Generate random packets of the wire formats of a program, and check that they parse as built
    Generate(GenerateArgs),
    /// Simulate a network
    Sim(weft_bench::networks::SimArgs),
    /// Emulate links, and record and explain their queues
    Link(LinkArgs),
    /// Run a benchmark
    Bench(weft_bench::BenchArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
    #[command(flatten)]
    Hidden(weft_bench::HiddenCommand),
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft check network.weft\n  weft check --cost network.weft")]
pub(crate) struct CheckArgs {
    /// The program's first file; `-` is standard input
    pub(crate) file: String,
    /// Print the diagnostics, and with --cost the costs, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show worst-case operations and memory of elements, operations of queue handlers, and lengths of headers
    #[arg(long)]
    pub(crate) cost: bool,
    /// Refuse a program whose state may exceed this memory, such as `2 GiB`
    #[arg(long, value_name = "SIZE", value_parser = MemoryLimit::of_option)]
    pub(crate) memory: Option<u64>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft compile library/queues/codel.weft --target verilog -o gates\n  \
                        weft compile library/queues/srpt.weft --target verilog --entries 16 --remaining-bits 16")]
pub(crate) struct CompileArgs {
    /// The program's first file
    pub(crate) file: String,
    /// The output language
    #[arg(long, value_enum)]
    pub(crate) target: Target,
    /// The queue; optional if there is only one
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Instead, build the comparator tree for the ranks of N packets or partitions: a power of two
    #[arg(long, value_name = "N")]
    pub(crate) entries: Option<u32>,
    /// Bits of times in nanoseconds; 48 bits cover 78 hours
    #[arg(long, default_value_t = 63, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=63))]
    pub(crate) time_bits: u32,
    /// Bits of packet lengths
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) len_bits: u32,
    /// Bits of p.remaining
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=63))]
    pub(crate) remaining_bits: u32,
    /// Write NAME.v into this folder; by default to standard output
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
    /// The program's first file
    pub(crate) file: String,
    /// The chain, link or queue; by default all chains and links
    pub(crate) name: Option<String>,
    /// What belongs to another command, so that it can be named
    #[arg(hide = true)]
    pub(crate) rest: Vec<String>,
    /// Also show the basis of the plans: effects of elements, permitted and refused swaps, tables, headers
    #[arg(long)]
    pub(crate) full: bool,
    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the plans of the chains into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<String>,
    /// Write the plans of the chains into this file for Graphviz
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<String>,
    /// Plan with the times and refusal rates measured by the node at this admin endpoint
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<SocketAddr>,
    /// The file with the node's token; by default where this user's `weft run` puts it
    #[arg(long, value_name = "FILE", requires = "admin")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft fmt network.weft\n  weft fmt --check *.weft")]
pub(crate) struct FmtArgs {
    /// Files or folders to rewrite in place; `-` formats standard input to standard output
    #[arg(required = true)]
    pub(crate) files: Vec<String>,
    /// Change nothing; list the files that would change, and exit with 1 if there are any
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
                  Editors start it; see editors/README.md for their setup.")]
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
    /// The program's first file
    pub(crate) file: String,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Seconds that calls in flight may take to finish when the node stops
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) grace: f64,
}

#[derive(Args)]
pub(crate) struct NodeArgs {
    /// Worker threads for calls, and as many for packets if the program has ports
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// Longest busy poll of a worker before it sleeps, if events arrive that soon; 0 to sleep at once
    #[arg(long, default_value_t = BUSY_POLL_US, value_name = "MICROSECONDS")]
    #[arg(value_parser = clap::value_parser!(u16).range(..=10_000))]
    pub(crate) busy_poll: u16,
    /// Sleep of a worker after a batch of eight or more packets, to build larger batches; 0 for the least latency and
    /// the most CPU
    #[arg(long, default_value_t = COALESCE_US, value_name = "MICROSECONDS")]
    #[arg(value_parser = clap::value_parser!(u16).range(..=10_000))]
    pub(crate) coalesce: u16,
    /// Address of the admin endpoint
    #[arg(long, default_value = "127.0.0.1:9901", value_name = "ADDRESS")]
    pub(crate) admin: SocketAddr,
    /// Permit an admin address that other machines can reach
    #[arg(long)]
    pub(crate) admin_anywhere: bool,
    /// Require the token for /metrics too, which includes the values of sinks TO METRICS
    #[arg(long)]
    pub(crate) private_metrics: bool,
    /// Drop all capabilities once the network runs: then later versions cannot listen on ports below 1024, and lost
    /// devices are not reopened
    #[arg(long)]
    pub(crate) drop_all: bool,
    /// The execution backend
    #[arg(long, value_enum, default_value_t = BackendName::Jit)]
    pub(crate) backend: BackendName,
    /// Memory limit for the state of a program, such as `2 GiB`; by default that of the process's cgroup
    #[arg(long, value_name = "SIZE", value_parser = MemoryLimit::of_option)]
    pub(crate) memory: Option<u64>,
    /// Seed of rand() and of the hashes of tables; by default random at each start. An attacker who knows the seed can
    /// choose keys that slow tables down
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Format of the node's log, on standard error
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub(crate) log: Format,
    /// The lowest level that is logged
    #[arg(long, value_enum, default_value_t = Level::Info, value_name = "LEVEL")]
    pub(crate) log_level: Level,
    /// Show the live table on standard error: if that is a terminal, always, or never
    #[arg(long, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub(crate) table: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// Machine code
    Jit,
    /// The interpreter: slow, the reference semantics
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
    /// Address of the node's admin endpoint
    #[arg(long, default_value = "127.0.0.1:9901", value_name = "ADDRESS")]
    pub(crate) admin: SocketAddr,
    /// The file with the node's token; by default where this user's `weft run` puts it
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft apply network.weft\n  weft apply --dry-run network.weft --json")]
pub(crate) struct ApplyArgs {
    /// The program's first file
    pub(crate) file: String,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Try the update on the node without applying it, and print the changes
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Refuse a program whose state may exceed this memory, such as `2 GiB`; the node's own limit also applies
    #[arg(long, value_name = "SIZE", value_parser = MemoryLimit::of_option)]
    pub(crate) memory: Option<u64>,
    /// Print the result as JSON
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
    /// The program's first file
    pub(crate) file: String,
    /// The chain; optional with one chain on ports, or if each capture names its port
    #[arg(long, value_name = "NAME")]
    pub(crate) chain: Option<String>,
    /// A pcap or pcapng capture and its ingress port; may be repeated, once per port. Packets arrive in the order of
    /// their timestamps, and all chains run
    #[arg(long = "in", value_name = "[PORT=]FILE", required = true)]
    pub(crate) inputs: Vec<String>,
    /// Ingress port of a FILE without PORT; by default the first of the chain
    #[arg(long, value_name = "NAME")]
    pub(crate) port: Option<String>,
    /// Write departing packets into this file: pcap if it ends in .pcap, else pcapng with an interface per port
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<String>,
    /// Write departing packets into this folder, a pcapng file per port
    #[arg(long, value_name = "FOLDER", conflicts_with = "out")]
    pub(crate) out_dir: Option<String>,
    /// Write each arriving packet into the file of --out, with its outcome as a comment
    #[arg(long, requires = "out")]
    pub(crate) annotate: bool,
    /// Complete packets captured before offloading: fill in the IPv4 checksum and a length of 0, and accept other
    /// checksums
    #[arg(long)]
    pub(crate) trust_checksums: bool,
    /// Replay at full speed, or with the recorded spacing; time is that of the capture in both
    #[arg(long, value_enum, default_value_t = Speed::Full)]
    pub(crate) speed: Speed,
    /// Stop after N packets
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Query tables at the end, like `weft query`; may be repeated
    #[arg(long, value_name = "SELECT")]
    pub(crate) query: Vec<String>,
    /// Write the rows for sinks into this file, one per line; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) rows: Option<String>,
    /// Print a table or JSON
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// The execution backend
    #[arg(long, value_enum, default_value_t = BackendName::Jit)]
    pub(crate) backend: BackendName,
    /// Seed of rand()
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft generate network.weft --out random.pcap\n  \
                        weft generate library/protocols/all.weft --with vxlan --count 100 --out vxlan.pcap\n  \
                        weft generate sensor.weft --with sensor -o json")]
pub(crate) struct GenerateArgs {
    /// The program's first file
    pub(crate) file: String,
    /// The first protocol of the packets; by default `ethernet`
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) first: Option<String>,
    /// Only packets with this layer; may be repeated
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) with: Vec<String>,
    /// Number of packets
    #[arg(long, default_value_t = 1000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) count: u64,
    /// Keep packets that violate a rule, and let the last header name a missing one
    #[arg(long)]
    pub(crate) malformed: bool,
    /// Write the packets into this file: pcap if it ends in .pcap, else pcapng
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<String>,
    /// Seed: the same seed gives the same packets
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print a table or JSON
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Speed {
    Full,
    Recorded,
}

#[derive(Args)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    pub(crate) action: LinkAction,
}

#[derive(Subcommand)]
pub(crate) enum LinkAction {
    /// Run a command or a shell behind an emulated link with rate, delay, loss or a trace, and a queue
    Emulate(Box<EmulateArgs>),
    /// Record the queue of a running node's link, of packets or of calls
    Record(LinkRecordArgs),
    /// Show a recording: queue length, waiting time and drops over time
    Show(LinkShowArgs),
    /// Explain the fate of a recorded packet or call: the deciding line and the values it saw
    Explain(LinkExplainArgs),
}

#[derive(Args)]
#[command(after_help = "Recording does not disturb the link. Without a recording there is no cost.\n\n\
                  Examples:\n  \
                  weft link record wan --for 10s\n  \
                  weft link record wan --for 2min -o wan.rec && weft link show wan.rec --svg wan.svg\n  \
                  weft link record tenants --for 30s && weft link explain tenants.rec")]
pub(crate) struct LinkRecordArgs {
    /// The name of the link, of a port, a cluster or a listener
    pub(crate) link: String,
    /// Duration, at most 10min; Ctrl-C stops earlier
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = weft_control::units::span)]
    pub(crate) span: u64,
    /// The output file; by default the link's name with .rec
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Most packets or calls; later ones are only counted
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) packets: u64,
    /// Size limit of the node's recording in MiB, at most 256
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) mib: u64,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  weft link show run.rec\n  weft link show run.rec --link down --svg down.svg"
)]
pub(crate) struct LinkShowArgs {
    /// A file written by `weft link record`, or by `--record` of another command
    pub(crate) file: PathBuf,
    /// The link; by default the one with most drops
    #[arg(long, value_name = "NAME")]
    pub(crate) link: Option<String>,
    /// Draw an SVG picture into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print JSON: each packet or call with its arrival, departure and outcome
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  weft link explain run.rec\n  weft link explain run.rec 1523 --link down"
)]
pub(crate) struct LinkExplainArgs {
    /// A file written by `weft link record`, or by `--record` of another command
    pub(crate) file: PathBuf,
    /// Number of the packet or call on its link, from 1; by default all drops are listed
    #[arg(value_name = "N")]
    pub(crate) packet: Option<u64>,
    /// The link; by default the one with most drops
    #[arg(long, value_name = "NAME")]
    pub(crate) link: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(
    override_usage = "weft link emulate [OPTIONS] [-- COMMAND...]",
    after_help = "Up is from the command to the other end, down is back. An option without a direction sets both.\n\
                  WEFT_WORLD holds the address of the other end, 100.64.0.1 for the only link, and WEFT_WORLD6\n\
                  its IPv6 address, fd64:7766:7400::1. The command needs root or user namespaces. Without root\n\
                  the other end is an empty namespace: start the peer there with --far.\n\n\
                  Examples:\n  \
                  weft link emulate --rate 15mbit --delay 75ms --queue fq_codel -- curl http://100.64.0.1:8000/\n  \
                  weft link emulate --down-trace verizon.down --up-trace verizon.up --delay 20ms --loss 1%\n  \
                  weft link emulate --rate 10mbit --loss-bursts 1%,25% --schedule train.txt -- ./client\n  \
                  weft link emulate --rate 10mbit --queue my.weft --far 'iperf3 -s -1' -- iperf3 -c 100.64.0.1"
)]
pub(crate) struct EmulateArgs {
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Changes of the link over time: each line is a time and new values of options, `5s rate=1mbit up-loss=2%`
    #[arg(long, value_name = "FILE")]
    pub(crate) schedule: Option<PathBuf>,
    /// Run this with `sh -c` at the other end, until the command ends
    #[arg(long, value_name = "COMMAND")]
    pub(crate) far: Option<String>,
    /// Seed of losses and of random numbers in queues. Neighbouring seeds give independent runs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Record both queues into this file, for `weft link show` and `weft link explain`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Print the summary as JSON, on standard output after the command's output
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments; by default a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft status\n  weft status --json --admin 127.0.0.1:9902")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a table or JSON
    #[arg(short, long, value_enum, default_value_t = Output::Table, conflicts_with = "json")]
    pub(crate) output: Output,
    /// Print the running program instead
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
    /// SELECT, INSERT, UPDATE and DELETE, separated by semicolons, or ALTER LINK; by default list the tables
    pub(crate) text: Option<String>,
    /// Read the statements from this file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub(crate) file: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print a table or JSON
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  nft list ruleset | weft import - --out-port lan,wan > rules.weft\n  \
                        weft import rules.v4 --table edge.ruleset.rules --keep-going > rules.weft")]
pub(crate) struct ImportArgs {
    /// Output of `nft list ruleset`, `iptables-save` or `ip6tables-save`; `-` is standard input
    pub(crate) file: String,
    /// The target table, of a `ruleset` stage
    #[arg(long, default_value = "edge.ruleset.rules", value_name = "NAME")]
    pub(crate) table: String,
    /// Import the base chains of this hook, and the chains that they jump to
    #[arg(long, default_value = "forward", value_parser = ["input", "forward", "output"])]
    pub(crate) hook: String,
    /// All egress interfaces, `lan,wan`; needed for rules with `!=` or `eth*`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) out_port: Vec<String>,
    /// All ingress interfaces, `lan,wan`; needed for rules with `!=` or `eth*`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) in_port: Vec<String>,
    /// The program's port names for interfaces, `br-lan=lan,eth0.2=wan`; by default the interface name
    #[arg(long, value_name = "INTERFACE=PORT", value_delimiter = ',')]
    pub(crate) port: Vec<String>,
    /// The format of the list; by default detected
    #[arg(long, value_enum)]
    pub(crate) format: Option<ListFormat>,
    /// Skip rules that cannot be imported, and import the others
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
    /// The CSV file, whose first line names the columns; `-` is standard input
    pub(crate) file: String,
    /// Replace existing rows, which are faults otherwise
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print JSON instead of a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft top\n  weft top --every 5 --json")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Seconds between refreshes
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) every: f64,
    /// Print each refresh as a JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  weft demo\n  weft demo --forever --in-flight 16")]
pub(crate) struct DemoArgs {
    /// Run until stopped
    #[arg(long)]
    pub(crate) forever: bool,
    /// Duration of the demo in seconds
    #[arg(
        long,
        default_value_t = 20.0,
        value_name = "SECONDS",
        value_parser = seconds,
        conflicts_with = "forever"
    )]
    pub(crate) seconds: f64,
    /// Calls in flight from the front end
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
    /// The command; by default `weft` itself
    pub(crate) command: Option<String>,
    /// Print the book's page instead
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
