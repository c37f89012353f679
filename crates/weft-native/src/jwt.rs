//! Message authentication, and JSON Web Tokens protected by it (RFC 7515, RFC 7519).

use crate::{key, option};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use core::fmt;
use hmac::{KeyInit as _, Mac as _};
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Map, Value as Json};
use sha2::Sha256;
use weft_core::native::PrepareError;
use weft_core::native::{Call, Ended, NativeDecl, Prepared};
use weft_core::{Interval, Time, Value};

/// Bytes of the longest token: more than any header may have.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// `rsaEncryption` with its NULL parameters, as in an AlgorithmIdentifier (RFC 8017 appendix A.1).
const RSA_ENCRYPTION: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
/// `id-ecPublicKey` on the curve `secp256r1` (RFC 5480 section 2.1.1).
const EC_P256: &[u8] =
    &[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

type HmacSha256 = hmac::Hmac<Sha256>;

/// `hmac_sha256`.
pub(crate) struct Hmac(HmacSha256);

impl fmt::Debug for Hmac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hmac")
    }
}

impl Hmac {
    pub(crate) fn new(key: Option<&[u8]>) -> Result<Self, PrepareError> {
        let secret = key::secret(key)?;
        Ok(Self(HmacSha256::new_from_slice(&secret).expect("HMAC accepts keys of any length")))
    }
}

impl Prepared for Hmac {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let mut mac = self.0.clone();
        mac.update(call.data());
        out.extend_from_slice(&mac.finalize().into_bytes());
        Ended::Bytes
    }
}

/// `jwt_verify`.
#[derive(Debug)]
pub(crate) struct Verify {
    key: VerifyKey,
    /// The only valid `alg`: a token does not choose its algorithm (RFC 8725 section 3.1).
    algorithm: &'static str,
    issuer: Option<String>,
    audience: Option<String>,
    leeway: Interval,
}

/// Whether the key of a declaration is public: keys that verify signatures are. All others are secrets.
pub fn is_key_public(decl: &NativeDecl) -> bool {
    matches!(option(decl, "algorithm"), Some(Value::Bytes(name)) if matches!(&name[..], b"RS256" | b"ES256"))
}

#[derive(Debug)]
enum VerifyKey {
    Hs256(Hmac),
    Rs256(UnparsedPublicKey<Vec<u8>>),
    Es256(UnparsedPublicKey<Vec<u8>>),
}

impl Verify {
    /// # Errors
    /// The key is missing or does not belong to the algorithm, or there is no such algorithm.
    pub(crate) fn new(decl: &NativeDecl, key: Option<&[u8]>) -> Result<Self, PrepareError> {
        let text = |name| match option(decl, name) {
            Some(Value::Bytes(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        };
        let leeway = match option(decl, "leeway") {
            Some(Value::Int(nanos)) => Interval(*nanos),
            _ => Interval::ZERO,
        };
        let (algorithm, key) = match text("algorithm").as_deref() {
            Some("HS256") => ("HS256", VerifyKey::Hs256(Hmac::new(key)?)),
            Some("RS256") => {
                let key = public_key(key, RSA_ENCRYPTION, "an RSA key")?;
                ("RS256", VerifyKey::Rs256(UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)))
            }
            Some("ES256") => {
                let key = public_key(key, EC_P256, "a key on the curve P-256")?;
                ("ES256", VerifyKey::Es256(UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key)))
            }
            _ => return Err(PrepareError::Constant("the algorithm is HS256, RS256 or ES256".into())),
        };
        Ok(Self { key, algorithm, issuer: text("issuer"), audience: text("audience"), leeway })
    }

    /// Verifies a token at this time; returns its claims, or None if it is invalid.
    fn claims(&self, token: &str, now: Time) -> Option<Vec<u8>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header: Map<String, Json> = serde_json::from_slice(&decoded(header)?).ok()?;
        // The extensions in `crit` must be understood, and none is (RFC 7515 section 4.1.11).
        if header.get("alg")? != self.algorithm || header.contains_key("crit") {
            return None;
        }
        self.key.verify(signed.as_bytes(), &decoded(signature)?)?;
        let claims = decoded(payload)?;
        let read: Map<String, Json> = serde_json::from_slice(&claims).ok()?;
        self.accepts(&read, now).then_some(claims)
    }

    /// Whether the times, the issuer and the audience of the claims are as required.
    fn accepts(&self, claims: &Map<String, Json>, now: Time) -> bool {
        let (now, leeway) = (now.0 as f64 / 1e9, self.leeway.0 as f64 / 1e9);
        // A date must be a number (RFC 7519 section 2).
        let date = |name: &str, holds: &dyn Fn(f64) -> bool| {
            claims.get(name).is_none_or(|date| date.as_f64().is_some_and(holds))
        };
        let is_for_us = |audience: &str| match claims.get("aud") {
            Some(Json::String(one)) => one == audience,
            Some(Json::Array(several)) => several.iter().any(|one| one == audience),
            _ => false,
        };
        date("exp", &|exp| now < exp + leeway)
            && date("nbf", &|nbf| now >= nbf - leeway)
            && self
                .issuer
                .as_ref()
                .is_none_or(|issuer| claims.get("iss").is_some_and(|iss| iss == issuer.as_str()))
            && self.audience.as_deref().is_none_or(is_for_us)
    }
}

impl Prepared for Verify {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let token = core::str::from_utf8(call.data()).ok().filter(|token| token.len() <= TOKEN_BYTES_MAX);
        match token.and_then(|token| self.claims(token, call.now)) {
            Some(claims) => {
                *out = claims;
                Ended::Bytes
            }
            None => Ended::Null,
        }
    }
}

impl VerifyKey {
    /// Verifies a signature with the key; None if it is wrong.
    fn verify(&self, signed: &[u8], signature: &[u8]) -> Option<()> {
        match self {
            Self::Hs256(Hmac(mac)) => {
                let mut mac = mac.clone();
                mac.update(signed);
                // This compares in constant time.
                mac.verify_slice(signature).ok()
            }
            Self::Rs256(key) | Self::Es256(key) => key.verify(signed, signature).ok(),
        }
    }
}

/// Decodes base64url without padding; None if it is malformed.
fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Reads the public key of a PEM file. An error if it belongs to another algorithm.
fn public_key(text: Option<&[u8]>, algorithm: &[u8], what: &str) -> Result<Vec<u8>, PrepareError> {
    let (label, der) = key::pem(text)?;
    if label == "RSA PUBLIC KEY" && algorithm == RSA_ENCRYPTION {
        return Ok(der);
    }
    let found = key::subject_public_key(&der).filter(|(found, _)| *found == algorithm);
    found.map(|(_, key)| key.to_vec()).ok_or_else(|| PrepareError::Key(format!("the key is not {what}")))
}
