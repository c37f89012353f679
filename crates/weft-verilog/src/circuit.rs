//! A circuit: a net between registers, with its inputs and outputs.

use crate::convert::{Converter, HandlerEnd, Source};
use crate::net::{Gate, Net, Wire};
use crate::range::Range;
use crate::share::{self, Path};
use crate::{ROOTS_MAX, Widths, print, tables};
use std::collections::BTreeSet;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BoolOp, IntCmp};
use weft_ir::queue::{Level, Moment, QueueProgram, Scope, Slot, Ty, Verdict, word};

/// A module in Verilog.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its name in Verilog.
    pub name: String,
    /// Its Verilog-2001 source.
    pub text: String,
    /// Its ports, besides `clk` and `reset`.
    pub ports: Vec<Port>,
    /// The moments at which it decides; the first has number 1 on the port `moment`.
    pub moments: Vec<Moment>,
}

/// A port of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: PortRole,
    /// Its number of bits.
    pub bits: u32,
    /// Its highest bit is a sign.
    pub signed: bool,
}

/// The role of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// In: the handler to run, 0 for none: then nothing changes.
    Moment,
    /// In: the value of a word.
    Word(Slot),
    /// Out: the new value of the word.
    NewWord(Slot),
    /// Out: the number of the verdict.
    Verdict,
    /// Out: the number that the handler gives, if it gives one.
    Given,
    /// Out: the decision is complete. Until then all inputs must stay as they are.
    Ready,
    /// In, of a tree: an entry is inserted, with the rank of the packet on the inputs.
    Push,
    /// In, of a tree: the index of the inserted entry.
    PushAt,
    /// In, of a tree: an entry is removed.
    Pop,
    /// In, of a tree: the index of the removed entry.
    PopAt,
    /// Out, of a tree: there is an entry.
    Some,
    /// Out, of a tree: the entry with the lowest rank.
    First,
    /// Out, of a tree: the entry with the highest rank.
    Last,
}

impl PortRole {
    /// Whether the port is an input of the module.
    pub fn is_input(self) -> bool {
        !matches!(
            self,
            Self::NewWord(_)
                | Self::Verdict
                | Self::Given
                | Self::Ready
                | Self::Some
                | Self::First
                | Self::Last
        )
    }
}

/// The circuit of a module, before printing.
pub(crate) struct Circuit {
    pub(crate) name: String,
    /// A description for its first lines.
    pub(crate) about: String,
    pub(crate) net: Net,
    /// The inputs of the net, with their names.
    pub(crate) inputs: Vec<(Source, String)>,
    pub(crate) ports: Vec<Port>,
    pub(crate) registers: Vec<Register>,
    /// The output ports.
    pub(crate) driven: Vec<OutputPort>,
    /// The divisions by roots.
    pub(crate) roots: Option<Roots>,
    pub(crate) moments: Vec<Moment>,
}

/// Divisions of one constant by roots, which one unit computes one after the other.
pub(crate) struct Roots {
    pub(crate) over: u64,
    /// The gates, and whether their results are used.
    pub(crate) each: Vec<(Wire, Wire)>,
}

/// An output port.
pub(crate) struct OutputPort {
    pub(crate) role: PortRole,
    pub(crate) name: String,
    pub(crate) range: Range,
    pub(crate) wire: Wire,
}

/// The register of a variable.
pub(crate) struct Register {
    pub(crate) slot: Slot,
    pub(crate) name: String,
    pub(crate) range: Range,
    pub(crate) start: u64,
    /// Its value after the decision; None if it is never written.
    pub(crate) next: Option<Wire>,
}

/// The module of a level.
///
/// # Errors
/// See [`crate::compile`].
pub(crate) fn build(program: &QueueProgram, level: &Level, widths: &Widths) -> Result<Module, Unsupported> {
    let circuit = Circuit::new(program, level, widths)?;
    let text = print::module(&circuit);
    let Circuit { name, ports, moments, .. } = circuit;
    Ok(Module { name, text, ports, moments })
}

impl Circuit {
    /// Converts the handlers of a level to a circuit with its ports and registers.
    ///
    /// # Errors
    /// See [`crate::compile`].
    pub(crate) fn new(program: &QueueProgram, level: &Level, widths: &Widths) -> Result<Self, Unsupported> {
        let mut converter = Converter::new(program, level, widths);
        let handlers: Vec<_> = level.handlers.iter().collect();
        let moments = Range { lo: 0, hi: handlers.len() as i64 };
        let moment = converter.input(Source::Moment, Ty::Int, moments);
        let mut ends = Vec::new();
        let mut path = Path::new();
        for (nth, (moment_of, handler)) in (1..).zip(&handlers) {
            let nth = converter.net.int(nth);
            let is_now = converter.net.compare(IntCmp::Eq, moment, nth);
            path.insert((is_now, true));
            ends.push((*moment_of, is_now, converter.handler(handler, path.clone())?));
            path.remove(&(is_now, true));
            path.insert((is_now, false));
        }
        let outs = outs(&mut converter, &ends);
        let roots: Vec<Wire> = outs.iter().map(|(_, wire)| *wire).collect();
        let lowered = tables::lower(&converter.net, &roots, &converter.lines, &converter.paths)?;
        let (net, roots) = share::share(&lowered.net, &lowered.roots, &lowered.paths);
        let (mut net, mut roots) = net.sharing(&roots);
        let seen = roots.split_off(outs.len());
        assert!(seen.len().is_multiple_of(2), "each root comes with the wire that tells whether it is used");
        let divided = roots_of(&mut net, &roots, &seen)?;
        let mut made = Self {
            name: format!("weft_{}", plain(&program.name)),
            about: program.to_string(),
            inputs: Vec::new(),
            ports: vec![Port::of(PortRole::Moment, "moment".into(), moments)],
            registers: Vec::new(),
            driven: Vec::new(),
            roots: divided,
            moments: handlers.iter().map(|(moment, _)| *moment).collect(),
            net,
        };
        made.add_inputs(&converter, &roots);
        for ((role, _), wire) in outs.into_iter().zip(roots) {
            made.add_out(&converter, role, wire)?;
        }
        if made.roots.is_some() {
            made.ports.push(Port::of(PortRole::Ready, "ready".into(), Range::BIT));
        }
        Ok(made)
    }

    /// Adds the ports and registers that the roots depend on.
    fn add_inputs(&mut self, converter: &Converter<'_>, roots: &[Wire]) {
        let gates = self.net.cone(roots, |_| false).into_iter().map(|wire| self.net.gate(wire));
        let used: BTreeSet<u32> =
            gates.filter_map(|gate| if let Gate::Input(nth) = gate { Some(nth) } else { None }).collect();
        for (nth, source) in (0..).zip(&converter.sources) {
            let Source::Slot(slot) = *source else {
                self.inputs.push((*source, "moment".into()));
                continue;
            };
            let name = name(converter, slot);
            self.inputs.push((*source, name.clone()));
            if !used.contains(&nth) {
                continue;
            }
            match converter.var(slot) {
                Some(_) => self.register(converter, slot).next = None,
                None => {
                    self.ports.push(Port::of(PortRole::Word(slot), name, converter.type_and_range(slot).1))
                }
            }
        }
    }

    /// Drives an output with a wire: the wire is the next value of a variable's register; other outputs get a port.
    ///
    /// # Errors
    /// A value may not fit in its variable.
    fn add_out(&mut self, converter: &Converter<'_>, role: PortRole, wire: Wire) -> Result<(), Unsupported> {
        let range = self.net.range(wire);
        let (name, range) = match role {
            PortRole::NewWord(slot) if converter.var(slot).is_some() => {
                let register = self.register(converter, slot);
                let (bits, held) = (register.range.bits(), register.range);
                if bits < 64 && !range.is_within(held) {
                    let name = &register.name;
                    let reason =
                        format!("{name} has {bits} bits, and may be given what needs {}", range.bits());
                    return Err(Unsupported { reason, line: 0 });
                }
                register.next = Some(wire);
                return Ok(());
            }
            PortRole::NewWord(slot) => (format!("new_{}", name(converter, slot)), range),
            PortRole::Verdict => ("verdict".into(), Range::bits_of(3)),
            _ => ("given".into(), range),
        };
        self.driven.push(OutputPort { role, name: name.clone(), range, wire });
        self.ports.push(Port::of(role, name, range));
        Ok(())
    }

    /// The register of a variable, created on first use.
    fn register(&mut self, converter: &Converter<'_>, slot: Slot) -> &mut Register {
        let at = self.registers.iter().position(|known| known.slot == slot).unwrap_or_else(|| {
            let start = converter.var(slot).map_or(0, |var| var.start);
            let (name, range) = (name(converter, slot), converter.type_and_range(slot).1);
            self.registers.push(Register { slot, name, range, start, next: None });
            self.registers.len() - 1
        });
        &mut self.registers[at]
    }
}

/// The divisions by roots that wires depend on. `seen` tells for some whether their results are used.
///
/// # Errors
/// There are more than [`ROOTS_MAX`], or divisions of several constants.
fn roots_of(net: &mut Net, wires: &[Wire], seen: &[Wire]) -> Result<Option<Roots>, Unsupported> {
    let refused = |reason| Err(Unsupported { reason, line: 0 });
    let mut all: Option<Roots> = None;
    for wire in net.cone(wires, |_| false) {
        let Gate::Root(over, _) = net.gate(wire) else { continue };
        let known = all.get_or_insert(Roots { over, each: Vec::new() });
        if known.over != over {
            return refused("several times are multiplied by rsqrt, and there is one unit for it".to_owned());
        }
        let places = seen.chunks_exact(2).filter(|pair| pair[0] == wire).map(|pair| pair[1]);
        let is_seen = places.reduce(|one, other| net.logic(BoolOp::Or, one, other));
        let is_seen = is_seen.unwrap_or_else(|| net.bool(true));
        known.each.push((wire, is_seen));
        if known.each.len() > ROOTS_MAX {
            return refused(format!("one decision takes more than {ROOTS_MAX} roots"));
        }
    }
    Ok(all)
}

impl Port {
    fn of(role: PortRole, name: String, range: Range) -> Self {
        Self { name, role, bits: range.bits(), signed: range.is_signed() }
    }
}

/// Merges the ends of all handlers into the outputs, with their wires.
fn outs(converter: &mut Converter<'_>, ends: &[(Moment, Wire, HandlerEnd)]) -> Vec<(PortRole, Wire)> {
    let written: BTreeSet<Slot> = ends.iter().flat_map(|(.., end)| end.words.keys().copied()).collect();
    let mut outs = Vec::new();
    for slot in written {
        let mut wire = converter.initial_word(slot);
        for (_, is_now, end) in ends.iter().rev() {
            if let Some(new) = end.words.get(&slot) {
                wire = converter.net.mux(*is_now, *new, wire);
            }
        }
        outs.push((PortRole::NewWord(slot), wire));
    }
    for (role, gives) in [(PortRole::Verdict, false), (PortRole::Given, true)] {
        let of_kind: Vec<_> = ends.iter().filter(|(moment, ..)| moment.gives() == gives).collect();
        let mut wire = converter.net.int(Verdict::Pass as i64);
        for (_, is_now, end) in of_kind.iter().rev() {
            wire = converter.net.mux(*is_now, end.result, wire);
        }
        if !of_kind.is_empty() {
            outs.push((role, wire));
        }
    }
    outs
}

/// The name of a word. A variable's name includes its word number, so that names are unique.
fn name(converter: &Converter<'_>, slot: Slot) -> String {
    let scope = slot.scope.name();
    if let Some(var) = converter.var(slot) {
        return format!("{scope}{}_{}", slot.word, plain(&var.name));
    }
    let word = match (slot.scope, slot.word) {
        (Scope::Node | Scope::Partition, word::PACKETS) => "packets",
        (Scope::Node | Scope::Partition, word::BYTES) => "bytes",
        (Scope::Partition, word::RANK) => "rank",
        (Scope::Packet, word::HANDLE) => "handle",
        (Scope::Packet, word::ARRIVED) => "arrived",
        (Scope::Packet, word::LEN) => "len",
        (Scope::Packet, word::ECN) => "ecn",
        (Scope::Packet, word::PACKET_RANK) => "rank",
        (Scope::Packet, at) => converter.field_name(at),
        (Scope::Event, word::NOW) => return "now".into(),
        (Scope::Event, word::RANDOM) => return "random".into(),
        (Scope::Event, word::DRAWN) => return "drawn".into(),
        (Scope::Event, word::HOLD) => return "hold".into(),
        (Scope::Event, word::DROPS) => return "drops".into(),
        (Scope::Event, word::RATE) => return "rate".into(),
        _ => "word",
    };
    format!("{scope}_{word}")
}

/// A valid Verilog name.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
