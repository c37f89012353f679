//! Selects the chains that run, and the ports at which captures arrive.

use super::inputs::INPUTS_MAX;
use crate::cli::ReplayArgs;
use crate::fault::Fault;
use std::path::Path;
use weft_lang::hir::{Chain, Edge, Network};

/// The selection of a command line.
pub(super) struct Choice<'n> {
    /// At least one.
    pub(super) chains: Vec<&'n Chain>,
    /// In the order of the options, one per port.
    pub(super) arrivals: Vec<Arrival>,
}

/// A capture, and its port of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) port: u16,
    pub(super) file: String,
}

/// An `--in` option.
enum InputArg<'a> {
    At(u16, &'a str),
    /// It arrives at the port of --port, or at the first port of the chain.
    Alone(&'a str),
}

impl<'n> Choice<'n> {
    /// # Errors
    /// The program has no chain on ports, or the options do not fit it or each other.
    pub(super) fn of(network: &'n Network, args: &ReplayArgs) -> Result<Self, Fault> {
        let input_arg =
            args.inputs.iter().map(|text| input_arg(network, text)).collect::<Result<Vec<_>, _>>()?;
        let n_alone = input_arg.iter().filter(|input_arg| matches!(input_arg, InputArg::Alone(_))).count();
        if n_alone > 1 {
            let what = "only one --in may leave out the port at which its packets arrive";
            return Err(Fault::usage(what).with_help("write --in PORT=FILE for each capture"));
        }
        if let (0, Some(port)) = (n_alone, &args.port) {
            let what = format!("--port {port} is of an --in without a port, and there is none");
            return Err(Fault::usage(what).with_help("leave it out, or write --in FILE"));
        }
        if input_arg.len() > INPUTS_MAX {
            return Err(Fault::usage(format!("a replay has {INPUTS_MAX} captures at most")));
        }
        let chains = chains(network, args, n_alone, input_arg.len())?;
        let mut arrivals = Vec::<Arrival>::new();
        for input_arg in input_arg {
            let (port, file) = match input_arg {
                InputArg::At(port, file) => {
                    (port_on(network, &chains, "--in", port_name(network, port))?, file)
                }
                InputArg::Alone(file) => match &args.port {
                    Some(name) => (port_on(network, &chains, "--port", name)?, file),
                    None => (ports(chains[0])[0] as u16, file),
                },
            };
            if let Some(other) = arrivals.iter().find(|other| other.port == port) {
                let name = port_name(network, port);
                let what = format!("two captures arrive at port `{name}`: {} and {file}", other.file);
                return Err(Fault::usage(what).with_help("a port takes one: `mergecap` makes one of several"));
            }
            arrivals.push(Arrival { port, file: file.to_owned() });
        }
        Ok(Self { chains, arrivals })
    }
}

/// `PORT=FILE`, or a file whose name may contain a `=`.
fn input_arg<'a>(network: &Network, text: &'a str) -> Result<InputArg<'a>, Fault> {
    let mut ports = network.ports.iter().enumerate();
    let file_at = |name: &str| text.strip_prefix(name)?.strip_prefix('=');
    if let Some((port, file)) = ports.find_map(|(at, port)| Some((at, file_at(&port.name)?))) {
        return Ok(InputArg::At(port as u16, file));
    }
    match text.split_once('=') {
        Some((name, _)) if !name.contains('/') && !Path::new(text).exists() => {
            let what = format!("there is no port `{name}`, and no file {text}");
            let known = names(network.ports.iter().map(|port| &port.name));
            Err(Fault::usage(what).with_help(format!("ports of the program: {known}")))
        }
        _ => Ok(InputArg::Alone(text)),
    }
}

/// The chains that run: the named one, all, or those of the only port of arrival.
fn chains<'n>(
    network: &'n Network,
    args: &ReplayArgs,
    n_alone: usize,
    n_given: usize,
) -> Result<Vec<&'n Chain>, Fault> {
    let all: Vec<&Chain> = network.chains.iter().filter(|chain| chain.edge.calls().is_none()).collect();
    let known = || names(all.iter().map(|chain| &chain.name));
    if all.is_empty() {
        return Err(Fault::Input("the program has no chain ON PORT: there is nothing to replay".to_owned()));
    }
    if let Some(name) = &args.chain {
        let named = all.iter().find(|chain| chain.name == *name);
        let missing = || Fault::usage(format!("there is no chain `{name}` on ports; there is: {}", known()));
        return Ok(vec![*named.ok_or_else(missing)?]);
    }
    if all.len() == 1 || n_alone == 0 {
        return Ok(all);
    }
    let Some(name) = &args.port else {
        let help = "or where the packets arrive: --port PORT, or --in PORT=FILE for each capture";
        return Err(Fault::usage(format!("say which chain with --chain: {}", known())).with_help(help));
    };
    let port = port_on(network, &all, "--port", name)?;
    let is_meant = |chain: &&Chain| n_given > 1 || ports(chain).contains(&usize::from(port));
    Ok(all.into_iter().filter(is_meant).collect())
}

/// The port with this name, if one of the chains is on it.
fn port_on(network: &Network, chains: &[&Chain], option: &str, name: &str) -> Result<u16, Fault> {
    let mut known: Vec<usize> = chains.iter().flat_map(|chain| ports(chain)).copied().collect();
    known.sort_unstable();
    known.dedup();
    let found = known.iter().find(|port| network.ports[**port].name == name);
    found.map(|port| *port as u16).ok_or_else(|| {
        let known = names(known.iter().map(|port| &network.ports[*port].name));
        Fault::usage(match chains {
            [chain] => format!("{option} {name}: a port that chain `{}` is on is meant: {known}", chain.name),
            _ => format!("{option} {name}: a port that a chain is on is meant: {known}"),
        })
    })
}

/// The ports of a chain; there is at least one.
fn ports(chain: &Chain) -> &[usize] {
    let Edge::Packets { ports, .. } = &chain.edge else { unreachable!("the chain is on ports") };
    ports
}

fn port_name(network: &Network, port: u16) -> &str {
    &network.ports[usize::from(port)].name
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
