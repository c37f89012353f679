//! Lowers the programs of frames beside a chain: its parser, WHEN, the key of a group, and the headers of a queue.

use weft_core::wire::{FieldRef, ProtocolId};
use weft_ir::program::{ChainProgram, Frames, Input, InputLocation, Meta};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, Network};
use weft_lang::source::{SourceMap, Span};

use super::locks::Lock;
use super::names::{self, Stage};
use super::reshape::{self, Roots};
use super::{LowerOptions, Lowering, Scope, lower_chain, places, wire};

/// As [`lower_with_lines`](super::lower_with_lines) and [`lower_when`], for frames that a capture may have
/// truncated: a frame may be shorter
/// than its headers say. Only the parsers differ.
///
/// # Errors
/// As for [`lower`](super::lower()).
///
/// # Panics
/// As for [`lower_with_lines`](super::lower_with_lines).
pub fn lower_for_cut_frames(
    network: &Network,
    chain: usize,
    options: &LowerOptions,
    sources: &SourceMap,
) -> Result<(ChainProgram, Option<ChainProgram>), Vec<Diagnostic>> {
    let lowering = |name: &str| {
        let lowering = Lowering::new(network, *options, Some(sources), name);
        Lowering { is_cut: true, ..lowering }
    };
    let condition = condition_of(network, chain, lowering).transpose()?;
    Ok((lower_chain(lowering(&network.chains[chain].name), chain)?, condition))
}

/// Lowers the condition of a chain on frames: `WHEN`. The program has one element, which drops frames that the chain
/// does not accept. None if the chain accepts all, or is not on frames; `chain` is an index into [`Network::chains`].
///
/// # Errors
/// As for [`lower`](super::lower()).
///
/// # Panics
/// The network has no such chain.
pub fn lower_when(
    network: &Network,
    chain: usize,
    options: &LowerOptions,
    sources: Option<&SourceMap>,
) -> Option<Result<ChainProgram, Vec<Diagnostic>>> {
    condition_of(network, chain, |name| Lowering::new(network, *options, sources, name))
}

/// Lowers the WHEN of a chain as a program of its own. None if the chain has none.
fn condition_of<'n>(
    network: &'n Network,
    chain: usize,
    lowering: impl FnOnce(&str) -> Lowering<'n>,
) -> Option<Result<ChainProgram, Vec<Diagnostic>>> {
    let chain = &network.chains[chain];
    let hir::Edge::Packets { ports, when: Some(when), .. } = &chain.edge else { return None };
    let (element, instance) = &**when;
    let mut lowering = lowering(&format!("{} when", chain.name));
    lowering.lower_standalone(element, instance, ports, chain.span);
    Some(lowering.finish(chain.span))
}

/// Lowers the flow key of a group: the program has one element, which marks a frame with the hash of the key. None if
/// the group has no key; `group` is an index into [`Network::groups`].
///
/// # Errors
/// As for [`lower`](super::lower()).
///
/// # Panics
/// The network has no such group.
pub fn lower_group(
    network: &Network,
    group: usize,
    options: &LowerOptions,
    sources: Option<&SourceMap>,
) -> Option<Result<ChainProgram, Vec<Diagnostic>>> {
    let group = &network.groups[group];
    let (element, instance) = &*group.key.as_ref()?.element;
    let element_span = instance.span;
    let ports: Vec<usize> = group.members.iter().map(|(port, _)| *port).collect();
    let mut lowering = Lowering::new(network, *options, sources, &format!("{} key", group.name));
    lowering.lower_standalone(element, instance, &ports, group.span);
    let comes_in = |input: &&Input| input.place == InputLocation::Meta(Meta::Port);
    if lowering.program.request.inputs.iter().any(|input| comes_in(&input)) {
        let message = "a group tells frames apart by what is in them";
        let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, message)
            .at(element_span, "`port`, where a frame came in, is not known where it leaves")
            .with_help("let an element send such frames to a port by its name");
        lowering.report(diagnostic);
    }
    Some(lowering.finish(group.span))
}

/// A program without elements, whose parser finds the headers that a queue reads; and for each of
/// [`Queue::headers`](hir::Queue::headers) its input of the request.
pub type LoweredHeaders = (ChainProgram, Vec<u16>);

/// Lowers the headers that the queue of a link reads. None if it reads none; `link` is an index into
/// [`Network::links`].
///
/// # Errors
/// As for [`lower`](super::lower()).
///
/// # Panics
/// The network has no such link.
pub fn lower_headers(
    network: &Network,
    link: usize,
    options: &LowerOptions,
) -> Option<Result<LoweredHeaders, Vec<Diagnostic>>> {
    let link = &network.links[link];
    let headers = link.queue.headers();
    if headers.is_empty() {
        return None;
    }
    let mut lowering = Lowering::new(network, *options, None, &format!("{} headers", link.name));
    lowering.roots = lowering.roots_of(&[link.port], None);
    let inputs = headers.iter().map(|header| {
        let place = InputLocation::Frame(header.field.clone());
        places::input(&mut lowering.program, hir::Direction::Request, place, header.ty, true, false).0
    });
    let inputs = inputs.collect();
    lowering.frames(&[link.port], &[], link.span);
    Some(lowering.finish(link.span).map(|program| (program, inputs)))
}

/// The names of protocols that frames may begin with: on devices and captures of Ethernet, and on `tun`.
const ETHERNET: &[&str] = &["ethernet"];
const IP: &[&str] = &["ipv4", "ipv6"];

/// Whether the frames of a port are IP packets, without a link header.
fn is_tun(network: &Network, port: usize) -> bool {
    network.ports[port].kind == hir::PortKind::Tun
}

impl<'n> Lowering<'n> {
    /// Lowers an element as a program of its own, on frames of these ports.
    fn lower_standalone(
        &mut self,
        element: &'n hir::Element,
        instance: &'n hir::Instance,
        ports: &[usize],
        span: Span,
    ) {
        self.roots = self.roots_of(ports, None);
        let lowered = self.element(&Scope::of(element, instance), core::iter::repeat(&Lock::Free));
        self.program.elements.push(lowered);
        self.frames(ports, &[(element, instance)], span);
    }

    /// Makes the parser for the inputs of a chain on frames.
    pub(super) fn frames(&mut self, ports: &[usize], stages: &[Stage<'_>], span: Span) {
        let network = self.network;
        for input in &mut self.program.request.inputs {
            match &input.place {
                InputLocation::Frame(field) => input.name = network.field_name(field),
                InputLocation::Layer(layer) => {
                    input.name = network.field_name(&FieldRef::presence(layer.clone()));
                }
                _ => {}
            }
        }
        let n_tuns = ports.iter().filter(|port| is_tun(network, **port)).count();
        if n_tuns > 0 && n_tuns < ports.len() {
            let message = "some ports of the chain carry Ethernet frames, others IP packets";
            let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, message)
                .at(span, "ports of two kinds")
                .with_help("make two chains, or a `tap` of the `tun`");
            return self.report(diagnostic);
        }
        let names = if n_tuns > 0 { IP } else { ETHERNET };
        let roots = self.roots.inside.clone();
        let is_of_frame =
            |input: &Input| matches!(input.place, InputLocation::Frame(_) | InputLocation::Layer(_));
        let has_fields = self.program.request.inputs.iter().any(is_of_frame);
        if has_fields && roots.is_empty() {
            let message =
                format!("frames begin with `{}`, and there is no such PROTOCOL", names.join("` or `"));
            let diagnostic = Diagnostic::error(code::NOT_IN_NETWORK, message)
                .at(span, "on these ports")
                .with_help("import it: `IMPORT 'library/protocols/all.weft';`");
            return self.report(diagnostic);
        }
        let behind = reshape::inputs_behind_tunnels(&self.program);
        let ChainProgram { elements, request, .. } = &mut self.program;
        match wire::frames(&network.protocols, (&roots, self.is_cut), &mut request.inputs, elements, &behind)
        {
            Ok(frames) => self.program.frames = Some(Frames { is_ip: n_tuns > 0, ..frames }),
            Err(why) => {
                let diagnostic = names::refusal(network, &self.program, stages, (why, span));
                self.report(diagnostic);
            }
        }
    }

    /// The first protocols of frames on these ports, and where they leave.
    pub(super) fn roots_of(&self, ports: &[usize], to: Option<usize>) -> Roots {
        let network = self.network;
        let of_name = |name: &&str| {
            let at = network.protocols.iter().position(|protocol| protocol.name == **name);
            at.map(|at| ProtocolId(at as u16))
        };
        let of_names = |names: &[&str]| names.iter().filter_map(of_name).collect::<Vec<_>>();
        let of_port = |port: usize| of_names(if is_tun(network, port) { IP } else { ETHERNET });
        let first = ports.first().copied();
        let links = if first.is_some_and(|port| is_tun(network, port)) { ETHERNET } else { &[] };
        Roots {
            inside: first.map_or_else(Vec::new, of_port),
            outside: to.map_or_else(Vec::new, of_port),
            links: of_names(links),
        }
    }
}
