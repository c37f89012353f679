//! Sets up the network of the ports benchmark: two namespaces, and what connects them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use weft_io::packet::OpenError;
use weft_io::packet::interface::{self, Feature};
use weft_io::packet::namespace::Namespace;

use crate::process::{self, Running};
use crate::rpc::Folder;

/// The addresses of both ends. To the ends they are in one network, to the middle in two: it answers for the other end.
const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 1, 1), Ipv4Addr::new(10, 78, 2, 1)];
const MIDDLES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 1, 254), Ipv4Addr::new(10, 78, 2, 254)];
/// The time that a node has to make its devices.
const APPEARS_MAX: Duration = Duration::from_secs(10);
const ENDS_PREFIX: u8 = 16;
const MIDDLES_PREFIX: u8 = 24;

/// A path from one namespace to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The ports that the ends are joined to.
    pub(crate) ports: [Port; 2],
    pub(crate) middle: Middle,
    /// Both ends send.
    pub(crate) is_both_ways: bool,
}

/// The link between an end and the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// A veth pair, and packet sockets.
    Packet,
    /// A veth pair, and XDP sockets.
    Xdp,
    /// A TAP device in the namespace of the end.
    Tap,
}

/// The middle between the ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Middle {
    /// None: the ends share a veth pair.
    Wire,
    /// The kernel routes.
    Kernel,
    /// A node with a chain of these stages.
    Node {
        /// `a -> b`
        stages: &'static str,
    },
    /// A node with a link on the port `right`.
    Shaped {
        /// `CREATE LINK out ON PORT right ...;`, with a queue `fifo`
        link: &'static str,
    },
    /// A node that sends all packets to a machine behind two TAP devices, which routes them back to it.
    Machine {
        /// In the same form, on the path to the machine and on the path from it.
        stages: &'static str,
    },
}

/// One end.
pub(crate) struct End {
    pub(crate) namespace: Namespace,
    pub(crate) device: &'static str,
    pub(crate) address: Ipv4Addr,
}

/// Two ends with a path between them.
pub(crate) struct World {
    pub(crate) ends: [End; 2],
    pub(crate) node: Option<Running>,
    pub(crate) is_both_ways: bool,
    // Keeps the middle alive as long as its namespaces.
    _between: Vec<Namespace>,
}

impl World {
    /// # Errors
    /// It is not permitted, or the node does not start.
    pub(crate) fn new(case: &Case, folder: &Folder, workers: u16) -> Result<Self, String> {
        let end = |address, device| make().map(|namespace| End { namespace, device, address });
        let ends: [End; 2] = [end(ENDS[0], "a")?, end(ENDS[1], "b")?];
        let middle = make()?;
        if matches!(case.middle, Middle::Wire) {
            ends[0].run_in(|| interface::make_veth("a", "b", Some(&ends[1].namespace)))?;
        } else {
            for (end, (port, to)) in ends.iter().zip(case.ports.iter().zip(["to_a", "to_b"])) {
                join(&middle, end, *port, to)?;
            }
        }
        let mut world = Self { ends, node: None, is_both_ways: case.is_both_ways, _between: Vec::new() };
        match case.middle {
            Middle::Wire => {}
            Middle::Kernel => forward(&middle, ["to_a", "to_b"])?,
            Middle::Node { stages } => {
                let program = world.program(case, stages, None);
                world.node = Some(start(&middle, folder, (case.name, workers), &program)?);
            }
            Middle::Shaped { link } => {
                let program =
                    format!("IMPORT 'library/queues/fifo.weft';\n{}{link}\n", world.program(case, "", None));
                world.node = Some(start(&middle, folder, ("shaped", workers), &program)?);
            }
            Middle::Machine { stages } => {
                let machine = make()?;
                let program = world.program(case, stages, Some(&machine));
                world.node = Some(start(&middle, folder, (case.name, workers), &program)?);
                ["v1", "v2"].iter().try_for_each(|device| await_device(&machine, device))?;
                forward(&machine, ["v1", "v2"])?;
                world._between.push(machine);
            }
        }
        for end in &world.ends {
            await_device(&end.namespace, end.device)?;
            end.run_in(|| {
                interface::add_address(end.device, IpAddr::V4(end.address), ENDS_PREFIX)?;
                interface::set_up(end.device, true)
            })?;
        }
        world._between.push(middle);
        Ok(world)
    }

    /// Writes the node's program for a case.
    fn program(&self, case: &Case, stages: &str, machine: Option<&Namespace>) -> String {
        let simple = include_str!("../packets/simple.weft");
        let mut text = format!("IMPORT 'library/protocols/all.weft';\n{simple}\n");
        let names = [("left", "to_a", "a"), ("right", "to_b", "b")];
        for ((name, to, device), (port, end)) in names.iter().zip(case.ports.iter().zip(&self.ends)) {
            text += &match port {
                Port::Packet => format!("CREATE PORT {name} ON packet '{to}';\n"),
                Port::Xdp => format!("CREATE PORT {name} ON xdp '{to}';\n"),
                Port::Tap => tap(name, device, &end.namespace),
            };
        }
        let ways = match machine {
            None => vec![("left", "right"), ("right", "left")],
            Some(machine) => {
                text += &tap("v1", "v1", machine);
                text += &tap("v2", "v2", machine);
                vec![("left", "v1"), ("v2", "right"), ("right", "v2"), ("v1", "left")]
            }
        };
        let end = if stages.is_empty() { "" } else { ";" };
        for (from, to) in ways {
            text += &format!("CREATE CHAIN from_{from} ON PORT {from} -> {to} AS {stages}{end} END;\n");
        }
        text
    }
}

impl End {
    /// Runs `work` in its namespace.
    pub(crate) fn run_in<R: Send>(
        &self,
        work: impl FnOnce() -> Result<R, OpenError> + Send,
    ) -> Result<R, String> {
        run_in(&self.namespace, work)
    }
}

fn run_in<R: Send>(
    namespace: &Namespace,
    work: impl FnOnce() -> Result<R, OpenError> + Send,
) -> Result<R, String> {
    namespace.run(work).and_then(|result| result).map_err(|error| error.to_string())
}

fn make() -> Result<Namespace, String> {
    Namespace::make().map_err(|error| error.to_string())
}

/// Waits for a device that a node makes.
fn await_device(namespace: &Namespace, device: &str) -> Result<(), String> {
    let until = Instant::now() + APPEARS_MAX;
    loop {
        match run_in(namespace, || interface::mtu(device).map(drop)) {
            Err(why) if Instant::now() > until => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
            Ok(()) => return Ok(()),
        }
    }
}

/// Makes a veth pair from the middle to an end, if its port needs one.
fn join(middle: &Namespace, end: &End, port: Port, to: &str) -> Result<(), String> {
    if port == Port::Tap {
        return Ok(());
    }
    run_in(middle, || {
        interface::make_veth(to, end.device, Some(&end.namespace))?;
        interface::set_up(to, true)
    })?;
    if port == Port::Xdp {
        // XDP passes unfinished checksums, so turn off their offload. Some of these features cannot be changed on some
        // kernels.
        end.run_in(|| {
            Feature::ALL.iter().for_each(|feature| drop(interface::set_feature(end.device, *feature, false)));
            Ok(())
        })?;
    }
    Ok(())
}

/// Makes the kernel of a namespace route between two devices, and answer on each for the network of the other.
fn forward(namespace: &Namespace, devices: [&str; 2]) -> Result<(), String> {
    let set = |name: &str| {
        fs::write(format!("/proc/sys/net/ipv4/{name}"), "1").map_err(|error| format!("{name}: {error}"))
    };
    let at_once = |device: &str| {
        let name = format!("/proc/sys/net/ipv4/neigh/{device}/proxy_delay");
        fs::write(&name, "0").map_err(|error| format!("{name}: {error}"))
    };
    let work = || {
        for (device, address) in devices.iter().zip(MIDDLES) {
            interface::add_address(device, IpAddr::V4(address), MIDDLES_PREFIX)
                .map_err(|error| error.to_string())?;
            interface::set_up(device, true).map_err(|error| error.to_string())?;
            set(&format!("conf/{device}/proxy_arp"))?;
            at_once(device)?;
        }
        set("ip_forward")
    };
    namespace.run(work).map_err(|error| error.to_string())?
}

/// A TAP port whose device is in a namespace of ours.
fn tap(name: &str, device: &str, namespace: &Namespace) -> String {
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd());
    format!("CREATE PORT {name} ON tap '{device}' WITH (namespace = '{path}');\n")
}

/// Starts a node in the middle, and waits until it has its ports.
fn start(
    middle: &Namespace,
    folder: &Folder,
    (name, workers): (&str, u16),
    program: &str,
) -> Result<Running, String> {
    let file: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let path = folder.write(&format!("{file}.weft"), program)?;
    let work = || {
        let admin = SocketAddr::from(([127, 0, 0, 1], process::free_port()?));
        let address = admin.to_string();
        let workers = workers.to_string();
        let args = ["run", &path, "--admin", &address, "--table", "never", "--workers", &workers];
        Running::listening(&args, admin)
    };
    middle.run(work).map_err(|error| error.to_string())?
}
