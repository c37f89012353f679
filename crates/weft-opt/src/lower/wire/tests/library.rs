//! The protocols of the library: they round-trip, and parsers agree with decoding.

#![allow(clippy::disallowed_methods, reason = "the library is read from disk")]

use std::fs;
use std::path::{Path, PathBuf};

use weft_core::rng::Rng;
use weft_core::schema::Schema;
use weft_core::wire::*;
use weft_lang::Resolver;
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_lang::resolve::{SchemaFault, SchemaSource};

use super::{AskedField, by_reading, chain, parse, shown};

/// Number of wanted fields per parser.
const FIELDS: usize = 40;

struct Library;

impl Resolver for Library {
    fn text(&mut self, path: &str, _: Option<&str>) -> Result<String, String> {
        match path {
            "main.weft" => Ok("IMPORT 'library/protocols/all.weft';".to_owned()),
            path => fs::read_to_string(root().join(path)).map_err(|error| error.to_string()),
        }
    }

    fn schema(&mut self, _: &SchemaSource<'_>, _: Option<&str>) -> Result<Schema, SchemaFault> {
        Err("no protocol has a schema".to_owned().into())
    }

    fn name(&mut self, path: &str, _: Option<&str>) -> String {
        path.to_owned()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn protocols() -> Vec<Protocol> {
    let (network, diagnostics, sources) = weft_lang::check("main.weft", &mut Library);
    let told = render_all(&diagnostics, &sources, RenderOptions::default());
    network.unwrap_or_else(|| panic!("{told}")).protocols
}

fn ethernet(protocols: &[Protocol]) -> ProtocolId {
    ProtocolId(
        protocols.iter().position(|protocol| protocol.name == "ethernet").expect("the library has Ethernet")
            as u16,
    )
}

#[test]
fn protocols_round_trip() {
    // A header that its own definition cannot read would be unreadable for others, too.
    let protocols = protocols();
    let mut built = vec![0; protocols.len()];
    for seed in 0..8_000u64 {
        let root = ProtocolId((seed % protocols.len() as u64) as u16);
        let (headers, payload) = generate::headers(&protocols, root, &mut Rng::from_seed(seed));
        let frame = match build(&protocols, &headers, &payload) {
            Ok(frame) => frame,
            Err(error) => panic!("seed {seed}: {error:?} in {headers:?}"),
        };
        let reading = read(&protocols, &[root], &frame);
        assert_eq!(generate::difference(&protocols, &headers, &reading), None, "seed {seed}: {headers:?}");
        for (_, layer) in headers.iter().zip(&reading.layers) {
            built[usize::from(layer.protocol.0)] += 1;
        }
    }
    for (protocol, n) in protocols.iter().zip(&built) {
        assert!(*n > 50, "{} was built {n} times", protocol.name);
    }
}

#[test]
fn library_parsers_match_full_decoding() {
    // A lowering error in one of them would let frames pass as others.
    let protocols = protocols();
    let root = ethernet(&protocols);
    // Each parser wants all layers, and some of the fields.
    let name = |name: &str| -> &'static str { Box::leak(name.to_owned().into_boxed_str()) };
    let all: Vec<AskedField> = (0..protocols.len() as u16)
        .flat_map(|at| {
            let fields = protocols[usize::from(at)].fields.iter().filter(|field| !field.name.is_empty());
            let fields: Vec<&'static str> = fields.map(|field| name(&field.name)).collect();
            (0..LEVELS_MAX).flat_map(move |level| fields.clone().into_iter().map(move |f| (level, at, f)))
        })
        .collect();
    let frames: Vec<Vec<u8>> = (0..1_500)
        .filter_map(|seed| {
            let rng = &mut Rng::from_seed(seed);
            let mut frame = generate::frame(&protocols, root, rng)?;
            for _ in 0..rng.below(3) {
                let at = rng.below(frame.len());
                frame[at] = rng.bits() as u8;
            }
            let len = if rng.below(8) == 0 { rng.below(frame.len()) } else { frame.len() };
            frame.truncate(len);
            Some(frame)
        })
        .collect();
    let (mut n_right, mut n_wrong) = (0, 0);
    for fields in all.chunks(FIELDS) {
        let parsers = chain(&protocols, root, fields);
        for frame in &frames {
            let (found, wanted) = (parse(&parsers, frame), by_reading(&protocols, root, fields, frame));
            match &found {
                // A parser reads only the wanted fields, so it may accept a frame that decoding rejects.
                Ok(_) if wanted.is_err() => continue,
                Ok(_) => n_right += 1,
                Err(_) => n_wrong += 1,
            }
            assert_eq!(shown(found), shown(wanted), "{frame:02x?}");
        }
    }
    assert!(n_right > 1_000 && n_wrong > 100, "{n_right} were right, {n_wrong} malformed");
}
