//! Authenticated encryption, with nonces that never repeat.
//!
//! The output is `nonce (24 bytes) || ciphertext || tag (16 bytes)`. A nonce is the 16 bytes of entropy of the
//! preparation, then 8 bytes that count its calls, of all workers together. So within one preparation no nonce repeats,
//! and those of two preparations differ unless 128 random bits collide. Both constructions take a nonce of this length:
//! XAES-256-GCM (C2SP) and XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03) derive from its first bytes a key that
//! belongs to this preparation alone.

use crate::ENTROPY_BYTES;
use aes_gcm::aead::array::Array;
use aes_gcm::aes::Aes256;
use aes_gcm::aes::cipher::BlockCipherEncrypt as _;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit as _};
use chacha20poly1305::ChaCha20Poly1305;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use weft_core::native::{Call, Ended, NATIVE_BYTES_MAX, Prepared};
use zeroize::{Zeroize as _, Zeroizing};

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const KEY_BYTES: usize = 32;

/// `aes_256_gcm_seal`, `chacha20_poly1305_seal`.
pub(crate) struct Seal {
    cipher: Cipher,
    entropy: [u8; ENTROPY_BYTES],
    /// Number of calls. At a million per second it overflows in half a million years.
    count: AtomicU64,
}

/// `aes_256_gcm_open`, `chacha20_poly1305_open`.
pub(crate) struct Open {
    key: OpenKey,
}

/// A cipher under the key of one nonce prefix.
enum Cipher {
    Aes(Box<Aes256Gcm>),
    ChaCha(ChaCha20Poly1305),
}

enum OpenKey {
    Aes(Box<Xaes>),
    ChaCha(Zeroizing<[u8; KEY_BYTES]>),
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Open")
    }
}

impl Seal {
    pub(crate) fn aes(key: &[u8; KEY_BYTES], entropy: [u8; ENTROPY_BYTES]) -> Self {
        Self { cipher: Xaes::new(key).cipher(&entropy), entropy, count: AtomicU64::new(0) }
    }

    pub(crate) fn chacha(key: &[u8; KEY_BYTES], entropy: [u8; ENTROPY_BYTES]) -> Self {
        Self { cipher: xchacha(key, &entropy), entropy, count: AtomicU64::new(0) }
    }
}

impl Prepared for Seal {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let data = call.data();
        if data.len() > NATIVE_BYTES_MAX - NONCE_BYTES - TAG_BYTES {
            return Ended::Failed;
        }
        let mut nonce = [0; NONCE_BYTES];
        nonce[..ENTROPY_BYTES].copy_from_slice(&self.entropy);
        nonce[ENTROPY_BYTES..].copy_from_slice(&self.count.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        out.reserve(NONCE_BYTES + data.len() + TAG_BYTES);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(data);
        match self.cipher.seal(&nonce, &mut out[NONCE_BYTES..]) {
            Some(tag) => {
                out.extend_from_slice(&tag);
                Ended::Bytes
            }
            None => Ended::Failed,
        }
    }
}

impl Open {
    pub(crate) fn aes(key: &[u8; KEY_BYTES]) -> Self {
        Self { key: OpenKey::Aes(Box::new(Xaes::new(key))) }
    }

    pub(crate) fn chacha(key: &[u8; KEY_BYTES]) -> Self {
        Self { key: OpenKey::ChaCha(Zeroizing::new(*key)) }
    }
}

impl Prepared for Open {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let opened = call.data().split_first_chunk::<NONCE_BYTES>().and_then(|(nonce, rest)| {
            let (data, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
            if data.len() > NATIVE_BYTES_MAX {
                return None;
            }
            let beginning = nonce.first_chunk().expect("a nonce is longer than its beginning");
            let cipher = match &self.key {
                OpenKey::Aes(key) => key.cipher(beginning),
                OpenKey::ChaCha(key) => xchacha(key, beginning),
            };
            out.extend_from_slice(data);
            cipher.open(nonce, out, tag)
        });
        if opened.is_some() { Ended::Bytes } else { Ended::Failed }
    }
}

impl Cipher {
    /// Encrypts the data in place and returns the tag; None if the cipher refuses the length.
    fn seal(&self, nonce: &[u8; NONCE_BYTES], data: &mut [u8]) -> Option<[u8; TAG_BYTES]> {
        let inner = self.inner_nonce(nonce);
        let tag = match self {
            Self::Aes(cipher) => cipher.encrypt_inout_detached(&Array(inner), b"", data.into()),
            Self::ChaCha(cipher) => cipher.encrypt_inout_detached(&Array(inner), b"", data.into()),
        };
        tag.ok().map(|tag| tag.0)
    }

    /// Decrypts the data in place; None if the tag does not match.
    fn open(&self, nonce: &[u8; NONCE_BYTES], data: &mut [u8], tag: &[u8; TAG_BYTES]) -> Option<()> {
        let inner = self.inner_nonce(nonce);
        let opened = match self {
            Self::Aes(cipher) => cipher.decrypt_inout_detached(&Array(inner), b"", data.into(), &Array(*tag)),
            Self::ChaCha(cipher) => {
                cipher.decrypt_inout_detached(&Array(inner), b"", data.into(), &Array(*tag))
            }
        };
        opened.ok()
    }

    /// The nonce of the inner cipher: the part of the outer one that the key derivation does not use.
    fn inner_nonce(&self, nonce: &[u8; NONCE_BYTES]) -> [u8; 12] {
        let mut inner = [0; 12];
        match self {
            Self::Aes(_) => inner.copy_from_slice(&nonce[12..]),
            // Four zero bytes, then the rest (draft-irtf-cfrg-xchacha-03 section 2.3).
            Self::ChaCha(_) => inner[4..].copy_from_slice(&nonce[16..]),
        }
        inner
    }
}

/// Makes the XChaCha20-Poly1305 cipher for nonces with this prefix.
fn xchacha(key: &[u8; KEY_BYTES], beginning: &[u8; ENTROPY_BYTES]) -> Cipher {
    let mut derived = chacha20::hchacha::<chacha20::R20>(&Array(*key), &Array(*beginning));
    let cipher = ChaCha20Poly1305::new(&derived);
    derived.zeroize();
    Cipher::ChaCha(cipher)
}

/// A key of XAES-256-GCM, and the subkey of its CMAC (C2SP, XAES-256-GCM; NIST SP 800-108r1 and SP 800-38B).
struct Xaes {
    block: Aes256,
    subkey: Zeroizing<[u8; 16]>,
}

impl Xaes {
    /// Expands the key and derives the CMAC subkey (SP 800-38B section 6.1).
    fn new(key: &[u8; KEY_BYTES]) -> Self {
        let block = Aes256::new(&Array(*key));
        let mut zeros = Array([0; 16]);
        block.encrypt_block(&mut zeros);
        // Doubled in the field of 2^128 elements (SP 800-38B section 6.1).
        let encrypted = u128::from_be_bytes(zeros.0);
        let reduced = if encrypted >> 127 == 0 { 0 } else { 0x87 };
        zeros.zeroize();
        Self { block, subkey: Zeroizing::new((encrypted << 1 ^ reduced).to_be_bytes()) }
    }

    /// The cipher for nonces with these first twelve bytes.
    fn cipher(&self, beginning: &[u8; ENTROPY_BYTES]) -> Cipher {
        Cipher::Aes(Box::new(Aes256Gcm::new(&Array(*self.derived(beginning)))))
    }

    /// Derives the key of the inner cipher from the beginning of a nonce.
    fn derived(&self, beginning: &[u8; ENTROPY_BYTES]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        for (half, counter) in derived.chunks_exact_mut(16).zip(1u8..) {
            let mut block = Array([0; 16]);
            block[..4].copy_from_slice(&[0, counter, b'X', 0]);
            block[4..].copy_from_slice(&beginning[..12]);
            block.iter_mut().zip(self.subkey.iter()).for_each(|(byte, key)| *byte ^= key);
            self.block.encrypt_block(&mut block);
            half.copy_from_slice(&block);
            block.zeroize();
        }
        derived
    }
}

/// The ciphers as their documentation uses them, with nonces of 12 bytes, and XAES-256-GCM with reused state: see
/// [`crate::by_hand`].
pub(crate) mod by_hand {
    use super::*;
    use crate::by_hand::ByHand;
    use core::hint::black_box;

    /// Makes a function that encrypts with plain AES-256-GCM, for comparison.
    pub(crate) fn aes_seal(key: [u8; KEY_BYTES]) -> ByHand {
        let cipher = Aes256Gcm::new(&Array(key));
        Box::new(move |data| {
            let mut made = data.to_vec();
            let _ =
                black_box(cipher.encrypt_inout_detached(&Array([1; 12]), b"", made.as_mut_slice().into()));
        })
    }

    /// Opening takes as much work as sealing: the same bytes through the same cipher and code.
    pub(crate) fn aes_open(key: [u8; KEY_BYTES]) -> ByHand {
        aes_seal(key)
    }

    /// Makes a function that encrypts with plain ChaCha20-Poly1305, for comparison.
    pub(crate) fn chacha_seal(key: [u8; KEY_BYTES]) -> ByHand {
        let cipher = ChaCha20Poly1305::new(&Array(key));
        Box::new(move |data| {
            let mut made = data.to_vec();
            let _ =
                black_box(cipher.encrypt_inout_detached(&Array([1; 12]), b"", made.as_mut_slice().into()));
        })
    }

    /// As [`aes_open`].
    pub(crate) fn chacha_open(key: [u8; KEY_BYTES]) -> ByHand {
        chacha_seal(key)
    }

    /// XAES-256-GCM with nonces of a common prefix and a counter.
    #[allow(missing_debug_implementations, reason = "a key is never shown")]
    pub struct Sealer {
        cipher: Aes256Gcm,
        beginning: [u8; ENTROPY_BYTES],
        count: AtomicU64,
    }

    impl Sealer {
        /// For nonces with this prefix, which no other sealer may have under this key.
        pub fn new(key: &[u8; KEY_BYTES], beginning: [u8; ENTROPY_BYTES]) -> Self {
            Self { cipher: aes_256_gcm(&Xaes::new(key), &beginning), beginning, count: AtomicU64::new(0) }
        }

        /// Appends nonce, ciphertext and tag; None if the data is too long for the cipher.
        pub fn seal(&self, data: &[u8], out: &mut Vec<u8>) -> Option<()> {
            out.extend_from_slice(&self.beginning);
            out.extend_from_slice(&self.count.fetch_add(1, Ordering::Relaxed).to_be_bytes());
            let start = out.len();
            let nonce: [u8; 12] = *out.last_chunk().expect("the output begins with the nonce of 24 bytes");
            out.extend_from_slice(data);
            let text = out[start..].as_mut().into();
            let tag = self.cipher.encrypt_inout_detached(&Array(nonce), b"", text).ok()?;
            out.extend_from_slice(&tag);
            Some(())
        }
    }

    /// Opens the output of a [`Sealer`] with the same key.
    #[allow(missing_debug_implementations, reason = "a key is never shown")]
    pub struct Opener(Xaes);

    impl Opener {
        /// For this key.
        pub fn new(key: &[u8; KEY_BYTES]) -> Self {
            Self(Xaes::new(key))
        }

        /// Appends the plaintext; None if the data was not sealed under the key, or was changed.
        pub fn open(&self, data: &[u8], out: &mut Vec<u8>) -> Option<()> {
            let (nonce, rest) = data.split_first_chunk::<NONCE_BYTES>()?;
            let (data, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
            let (beginning, inner) = (nonce.first_chunk()?, nonce.last_chunk::<12>()?);
            let start = out.len();
            out.extend_from_slice(data);
            let text = out[start..].as_mut().into();
            aes_256_gcm(&self.0, beginning)
                .decrypt_inout_detached(&Array(*inner), b"", text, &Array(*tag))
                .ok()
        }
    }

    fn aes_256_gcm(key: &Xaes, beginning: &[u8; ENTROPY_BYTES]) -> Aes256Gcm {
        Aes256Gcm::new(&Array(*key.derived(beginning)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::native::Arg;

    fn unhex(digits: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        crate::text::push_unhex(digits.as_bytes(), &mut bytes).expect("the text is hexadecimal");
        bytes
    }

    const SUNSCREEN: &[u8] =
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                               sunscreen would be it.";
    const SUNSCREEN_AAD: &str = "50515253c0c1c2c3c4c5c6c7";

    fn counting_key() -> [u8; 32] {
        core::array::from_fn(|i| 0x80 + i as u8)
    }

    #[test]
    fn ciphers_match_standards() {
        // RFC 8439 section 2.8.2.
        let mut data = SUNSCREEN.to_vec();
        let nonce: [u8; 12] = unhex("070000004041424344454647").try_into().expect("the nonce has 12 bytes");
        let cipher = ChaCha20Poly1305::new(&Array(counting_key()));
        let tag =
            cipher.encrypt_inout_detached(&Array(nonce), &unhex(SUNSCREEN_AAD), data.as_mut_slice().into());
        assert_eq!(
            data,
            unhex(
                "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da927\
                28b1a71de0a\
                 9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4d\
                 ef08e4b7a9d\
                 e576d26586cec64b6116"
            )
        );
        assert_eq!(tag.expect("the message is short").to_vec(), unhex("1ae10b594f09e26a7e902ecbd0600691"));
        // NIST, "The Galois/Counter Mode of Operation", test case 14.
        let mut data = [0; 16];
        let cipher = Aes256Gcm::new(&Array([0; 32]));
        let tag = cipher.encrypt_inout_detached(&Array([0; 12]), b"", data.as_mut_slice().into());
        assert_eq!(data.to_vec(), unhex("cea7403d4d606b6e074ec5d3baf39d18"));
        assert_eq!(tag.expect("the message is short").to_vec(), unhex("d0d1c8a799996bf0265b98b5d48ab919"));
    }

    #[test]
    fn long_nonces_match_papers() {
        // draft-irtf-cfrg-xchacha-03 appendix A.3.1. There is no additional data here; the test is about the derived
        // key and the inner nonce.
        let nonce: [u8; 24] = core::array::from_fn(|i| 0x40 + i as u8);
        let Cipher::ChaCha(cipher) =
            xchacha(&counting_key(), nonce.first_chunk().expect("a nonce is longer than its beginning"))
        else {
            unreachable!("XChaCha uses ChaCha");
        };
        let mut inner = [0; 12];
        inner[4..].copy_from_slice(&nonce[16..]);
        let mut data = SUNSCREEN.to_vec();
        let tag =
            cipher.encrypt_inout_detached(&Array(inner), &unhex(SUNSCREEN_AAD), data.as_mut_slice().into());
        assert_eq!(
            data,
            unhex(
                "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7\
                e39ae64c670\
                 8c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff921f96\
                 64c97637da9\
                 768812f615c68b13b52e"
            )
        );
        assert_eq!(tag.expect("the message is short").to_vec(), unhex("c0875924c1c7987947deafd8780acf49"));

        // C2SP, XAES-256-GCM, the first test vector: no additional data.
        let nonce = *b"ABCDEFGHIJKLMNOPQRSTUVWX";
        let mut data = b"XAES-256-GCM".to_vec();
        let cipher =
            Xaes::new(&[1; 32]).cipher(nonce.first_chunk().expect("a nonce is longer than its beginning"));
        let tag = cipher.seal(&nonce, &mut data).expect("the message is short");
        data.extend_from_slice(&tag);
        assert_eq!(data, unhex("ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"));
    }

    #[test]
    fn nonces_never_repeat() {
        // Two messages under one nonce reveal their difference, and with GCM the key of all tags.
        for seal in [Seal::aes(&[1; 32], [2; 16]), Seal::chacha(&[1; 32], [2; 16])] {
            let nonces = |_| {
                let mut out = Vec::new();
                let call = Call { args: &[Arg::Bytes(b"same")], now: weft_core::Time(0), rand: 0 };
                (0..500)
                    .map(|_| {
                        out.clear();
                        assert_eq!(seal.call(&call, &mut out), Ended::Bytes);
                        out[..NONCE_BYTES].to_vec()
                    })
                    .collect::<Vec<_>>()
            };
            #[allow(clippy::disallowed_methods, reason = "workers are threads, and share the function")]
            let mut all: Vec<Vec<u8>> = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..4).map(|at| scope.spawn(move || nonces(at))).collect();
                workers.into_iter().flat_map(|worker| worker.join().expect("the worker ends")).collect()
            });
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 2000);
            assert!(all.iter().all(|nonce| nonce[..ENTROPY_BYTES] == [2; 16]));
        }
    }

    #[test]
    fn foreign_key_does_not_open() {
        // Opening with a wrong key would put garbage into a message.
        let mut sealed = Vec::new();
        let call = |data| Call { args: data, now: weft_core::Time(0), rand: 0 };
        Seal::aes(&[1; 32], [2; 16]).call(&call(&[Arg::Bytes(b"secret")]), &mut sealed);
        let args = [Arg::Bytes(&sealed)];
        let opened = |open: Open| {
            let mut out = Vec::new();
            (open.call(&call(&args), &mut out), out)
        };
        assert_eq!(opened(Open::aes(&[1; 32])), (Ended::Bytes, b"secret".to_vec()));
        assert_eq!(opened(Open::aes(&[3; 32])).0, Ended::Failed);
        assert_eq!(opened(Open::chacha(&[1; 32])).0, Ended::Failed);
    }
}
