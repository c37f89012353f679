//! Runs modules: a test bench in C++ that Verilator compiles, and the synthesis by Yosys.

use core::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use weft_core::rng::Rng;
use weft_ir::queue::generate::HandlerWords;
use weft_ir::queue::run::handle;
use weft_ir::queue::{Level, Moment, QueueProgram, Scope, Slot, Verdict, word};
use weft_verilog::{Module, Port, PortRole};

/// Largest number of clocks of a decision.
const CLOCKS_MAX: u32 = 200;

/// The kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Events {
    /// Words from the edges of their ranges.
    Edges,
    /// Time advances, queues build up and drain, and consecutive drops are counted.
    Traffic,
}

/// The decisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct VerdictCounts {
    /// How often, by the number of the verdict.
    pub(crate) verdicts: [u64; 7],
}

/// Compiled modules, in a folder that is removed with them.
pub(crate) struct Bench {
    folder: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    /// Compiles the modules with Verilator, and a program that reads inputs and expected outputs of one of them.
    pub(crate) fn build(modules: &[&Module]) -> Self {
        let folder =
            std::env::temp_dir().join(format!("weft-gates-{}-{}", std::process::id(), modules[0].name));
        fs::create_dir_all(&folder).expect("the folder of temporary files can be written");
        let texts: String = modules.iter().map(|module| module.text.as_str()).collect();
        fs::write(folder.join("top.v"), texts + &top(modules)).expect("the file can be written");
        fs::write(folder.join("main.cpp"), main(modules)).expect("the file can be written");
        let built = Command::new("verilator")
            .current_dir(&folder)
            .args([
                "--cc",
                "--exe",
                "--build",
                "-O3",
                "--language",
                "1364-2001",
                "-Wall",
                "-Wno-DECLFILENAME",
            ])
            .args(["-Wno-UNUSED", "-Wno-MULTITOP", "--top-module", "top", "top.v", "main.cpp"])
            .args(["-CFLAGS", "-O1"])
            .stdout(Stdio::null())
            .status();
        let built = built.expect("verilator is installed");
        assert!(built.success(), "verilator refused {}", folder.join("top.v").display());
        Self { folder }
    }

    /// Runs one of the modules and the interpreter on the same events, in sequence.
    pub(crate) fn run(
        &self,
        nth: usize,
        program: &QueueProgram,
        module: &Module,
        events: Events,
        n: usize,
    ) -> VerdictCounts {
        let mut meaning = ReferenceModel::new(program, module);
        self.compare(nth, module, n, || meaning.event(events));
        meaning.told
    }

    /// Runs one of the modules on records: its inputs, and for each output the expected value and whether it matters.
    pub(crate) fn compare(
        &self,
        nth: usize,
        module: &Module,
        n: usize,
        mut record: impl FnMut() -> Vec<u64>,
    ) {
        let mut child = Command::new(self.folder.join("obj_dir/Vtop"))
            .arg(nth.to_string())
            .stdin(Stdio::piped())
            .spawn()
            .expect("the bench was built");
        let mut out = BufWriter::new(child.stdin.take().expect("the input is piped"));
        for _ in 0..n {
            // The bench ends at the first difference, which it has printed.
            if record().iter().try_for_each(|word| out.write_all(&word.to_le_bytes())).is_err() {
                break;
            }
        }
        drop(out);
        let ended = child.wait().expect("the simulation runs");
        assert!(ended.success(), "{} differs:\n{}", module.name, module.text);
    }
}

/// The interpreter, and its statistics.
struct ReferenceModel<'m> {
    level: &'m Level,
    module: &'m Module,
    words: HandlerWords,
    rng: Rng,
    now: u64,
    /// Consecutive drops.
    drops: u64,
    /// The current waiting time of packets.
    wait: u64,
    told: VerdictCounts,
}

impl<'m> ReferenceModel<'m> {
    fn new(program: &'m QueueProgram, module: &'m Module) -> Self {
        let level = &program.levels[0];
        let rng = Rng::from_seed(7);
        Self {
            level,
            module,
            words: HandlerWords::at_start(level),
            rng,
            now: 1,
            drops: 0,
            wait: 0,
            told: VerdictCounts::default(),
        }
    }

    /// All inputs of an event, and for each output the expected value and whether it matters.
    fn event(&mut self, events: Events) -> Vec<u64> {
        let moment = self.rng.below(self.module.moments.len());
        // Few queues run empty at every other packet.
        let moment = if events == Events::Traffic && self.rng.percent(98) { 0 } else { moment };
        self.time(events);
        let mut record = Vec::new();
        for port in self.module.ports.iter().filter(|port| port.role.is_input()) {
            let value = match port.role {
                PortRole::Word(slot) => {
                    let value = self.word(events, slot, port);
                    *self.words.lend().word(slot) = value;
                    value
                }
                _ => moment as u64 + 1,
            };
            record.push(value);
        }
        let moment = self.module.moments[moment];
        let handler = self.level.handlers.get(moment).expect("the moments are those that have a handler");
        let result = handle(handler, &mut self.words.lend());
        self.note(moment, result);
        if events == Events::Traffic && moment == Moment::Empty {
            // An idle time of up to two seconds.
            self.now += self.rng.below(1 << 31) as u64;
        }
        for port in told(self.module) {
            let (value, matters) = match port.role {
                PortRole::NewWord(slot) => (self.words.get(slot), true),
                PortRole::Verdict => (Verdict::of_word(result) as u64, !moment.gives()),
                _ => (result, moment.gives()),
            };
            record.extend([value, u64::from(matters)]);
        }
        record
    }

    fn time(&mut self, events: Events) {
        if events == Events::Traffic {
            self.now += if self.drops > 0 { 0 } else { self.rng.below(2_000_000) as u64 };
            // A queue that builds up, persists, and drains.
            self.wait = match self.rng.below(400) {
                0 => 0,
                1 => 30_000_000,
                _ => (self.wait + self.rng.below(400_000) as u64).saturating_sub(200_000),
            };
        }
    }

    fn note(&mut self, moment: Moment, result: u64) {
        if !moment.gives() {
            let verdict = Verdict::of_word(result);
            self.told.verdicts[verdict as usize] += 1;
            self.drops = if verdict == Verdict::Drop { self.drops + 1 } else { 0 };
        }
    }

    /// A possible value of a port.
    fn word(&mut self, events: Events, slot: Slot, port: &Port) -> u64 {
        if events == Events::Traffic {
            match (slot.scope, slot.word) {
                (Scope::Event, word::NOW) => return self.now,
                (Scope::Event, word::DROPS) => return self.drops,
                (Scope::Packet, word::ARRIVED) => return self.now.saturating_sub(self.wait),
                (Scope::Node, word::BYTES) if self.rng.percent(99) => return 100_000,
                (Scope::Node, word::BYTES) => return self.rng.pick(&[0, 1514, 1515]),
                (Scope::Node, word::PACKETS) => return self.wait / 1_000_000,
                (Scope::Event, word::RANDOM) => return self.rng.bits() >> 11,
                (Scope::Packet, word::ECN) => return self.rng.below(4) as u64,
                _ => {}
            }
        }
        let (unused, bits) = (64 - port.bits, self.rng.bits());
        let most = u64::MAX >> unused >> u32::from(port.signed);
        match self.rng.below(6) {
            0 => self.rng.below(3) as u64 & most,
            1 => most - self.rng.below(2) as u64 % (most + 1).max(1),
            2 if port.signed => !most,
            3 => self.rng.pick(&[63, 64, 1500, 5_000_000]) & most,
            _ if port.signed => ((bits << unused) as i64 >> unused >> self.rng.below(64)) as u64,
            _ => bits >> unused >> self.rng.below(port.bits as usize),
        }
    }
}

/// A module with all modules, and the ports of each.
fn top(modules: &[&Module]) -> String {
    let mut ports = vec!["input wire clk".to_owned(), "input wire reset".to_owned()];
    let mut inside = String::new();
    for (nth, module) in modules.iter().enumerate() {
        let _ = write!(inside, "  {} m{nth} (.clk(clk), .reset(reset)", module.name);
        for Port { name, role, bits, .. } in &module.ports {
            let direction = if role.is_input() { "input" } else { "output" };
            ports.push(format!("{direction} wire [{}:0] m{nth}_{name}", bits - 1));
            let _ = write!(inside, ", .{name}(m{nth}_{name})");
        }
        inside.push_str(");\n");
    }
    format!("module top (\n  {}\n);\n{inside}endmodule\n", ports.join(",\n  "))
}

/// The outputs to compare.
fn told(module: &Module) -> impl Iterator<Item = &Port> {
    module.ports.iter().filter(|port| !port.role.is_input() && port.role != PortRole::Ready)
}

/// A program that reads records for one of the modules, and ends with 1 at the first wrong output.
fn main(modules: &[&Module]) -> String {
    let mut text = String::from(
        "#include \"Vtop.h\"\n#include \"verilated.h\"\n#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n\
         static Vtop *top;\n\
         static uint64_t cut(uint64_t word, int bits) { return bits == 64 ? word : word & ((1ull << bits) - 1); }\n\
         static void tick() { top->clk = 0; top->eval(); top->clk = 1; top->eval(); }\n",
    );
    for (nth, module) in modules.iter().enumerate() {
        let _ = writeln!(text, "static int run{nth}() {{\n  long clocks = 0, longest = 0;");
        let words =
            module.ports.iter().filter(|port| port.role.is_input()).count() + 2 * told(module).count();
        let _ = writeln!(
            text,
            "  uint64_t r[{words}];\n  for (long n = 0; fread(r, 8, {words}, stdin) == {words}; n++) {{"
        );
        let mut at = 0;
        for Port { name, bits, .. } in module.ports.iter().filter(|port| port.role.is_input()) {
            let _ = writeln!(text, "    top->m{nth}_{name} = cut(r[{at}], {bits});");
            at += 1;
        }
        text.push_str("    top->clk = 0; top->eval();\n");
        if module.ports.iter().any(|port| port.role == PortRole::Ready) {
            let _ = writeln!(
                text,
                "    long waits = 0;\n    for (; !top->m{nth}_ready; waits++) {{\n      \
                 if (waits == {CLOCKS_MAX}) {{\n        \
                 fprintf(stderr, \"event %ld: never ready\\n\", n);\n        return 1;\n      }}\n      \
                 top->clk = 1; top->eval(); top->clk = 0; top->eval();\n    }}\n    \
                 clocks += waits + 1;\n    if (waits > longest) longest = waits;"
            );
        }
        for Port { name, bits, .. } in told(module) {
            let _ = writeln!(
                text,
                "    if (r[{}] && (uint64_t)top->m{nth}_{name} != cut(r[{at}], {bits})) {{\n      \
                 fprintf(stderr, \"event %ld: {name} is %llx and not %llx\\n\", n, \
                 (unsigned long long)top->m{nth}_{name}, (unsigned long long)cut(r[{at}], {bits}));\n      \
                 return 1;\n    }}",
                at + 1
            );
            at += 2;
        }
        text.push_str(
            "    top->clk = 1; top->eval();\n  }\n  \
             if (clocks) fprintf(stderr, \"%ld clocks, at most %ld a decision\\n\", clocks, longest + 1);\n  \
             return 0;\n}\n",
        );
    }
    text.push_str(
        "int main(int argc, char **argv) {\n  top = new Vtop;\n  top->reset = 1; tick(); top->reset = 0;\n",
    );
    text.push_str("  switch (atoi(argv[1])) {\n");
    for nth in 0..modules.len() {
        let _ = writeln!(text, "    case {nth}: return run{nth}();");
    }
    text.push_str("  }\n  return 2;\n}\n");
    text
}

/// The area of a module on a Xilinx 7-series chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) luts: u32,
    pub(crate) flip_flops: u32,
    pub(crate) carries: u32,
    pub(crate) dsps: u32,
}

/// Synthesises a module with Yosys.
pub(crate) fn area(name: &str, text: &str, options: &[&str]) -> Area {
    let file = std::env::temp_dir().join(format!("weft-area-{}-{name}.v", std::process::id()));
    fs::write(&file, text).expect("the file can be written");
    let script = format!(
        "read_verilog {}; synth_xilinx -noiopad -flatten {} -top {name}; stat",
        file.display(),
        options.join(" ")
    );
    let ran = Command::new("yosys").args(["-p", &script]).output().expect("yosys is installed");
    assert!(
        ran.status.success(),
        "yosys refused {}: {}",
        file.display(),
        String::from_utf8_lossy(&ran.stderr)
    );
    let _ = fs::remove_file(&file);
    let told = String::from_utf8_lossy(&ran.stdout);
    let (_, cells) = told.rsplit_once("Number of cells:").expect("`stat` tells the cells");
    let mut area = Area::default();
    for line in cells.lines().skip(1) {
        let mut words = line.split_whitespace();
        let (Some(cell), Some(Ok(n))) = (words.next(), words.next().map(str::parse::<u32>)) else { continue };
        match cell {
            _ if cell.starts_with("LUT") => area.luts += n,
            _ if cell.starts_with("FD") => area.flip_flops += n,
            "CARRY4" => area.carries += n,
            _ if cell.starts_with("DSP") => area.dsps += n,
            _ => {}
        }
    }
    area
}
