//! Reads the parts of an X.509 certificate (RFC 5280) that rustls does not expose: serial number, validity, subject,
//! alternative names, public key.
//!
//! The reader verifies nothing: rustls (webpki) checks signatures, chains and usages. It accepts only DER, as the
//! standard requires, and never reads beyond its input.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::fmt;
use std::net::IpAddr;

/// The maximum length of a certificate, in bytes. Real certificates have less than 4 kB.
pub const MAX_BYTES: usize = 64 << 10;

/// The parts of a certificate. Each text is as in the certificate: not escaped, and of any length up to `MAX_BYTES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The serial number, big-endian, without leading zeros. Zero is one byte.
    pub serial: Vec<u8>,
    /// The issuer's name in DER.
    pub issuer: Vec<u8>,
    /// The subject's name in DER.
    pub subject: Vec<u8>,
    /// The first second of the validity.
    pub not_before: Timestamp,
    /// The last second of the validity.
    pub not_after: Timestamp,
    /// The common name (CN) of the subject.
    pub common_name: Option<String>,
    /// The organisations (O) of the subject, in their order.
    pub organizations: Vec<String>,
    /// The DNS names among the subject's alternative names.
    pub dns_names: Vec<String>,
    /// The IP addresses among the subject's alternative names.
    pub addresses: Vec<IpAddr>,
    /// SubjectPublicKeyInfo in DER.
    pub public_key: Vec<u8>,
}

/// The part of the certificate that is invalid, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub part: &'static str,
    pub reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The value is not in DER, is truncated, or has a type other than the one that the standard requires.
    Encoding,
    /// A string of an obsolete type, or with invalid bytes.
    Text,
    /// A time that does not exist.
    Time,
    /// A value that must occur only once occurs twice.
    Twice,
    /// Longer than `MAX_BYTES`.
    Length,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            Reason::Encoding => "not the DER form that X.509 requires",
            Reason::Text => "not valid UTF-8 or ASCII text",
            Reason::Time => "not a valid time",
            Reason::Twice => "more than one value",
            Reason::Length => "too long",
        };
        write!(f, "invalid certificate: {}: {reason}", self.part)
    }
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[n]`, constructed: the optional fields of TBSCertificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `[2]` and `[7]`, primitive: GeneralName.
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// 2.5.4.3, 2.5.4.10 and 2.5.29.17.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Reads a certificate in DER.
///
/// # Errors
/// The bytes are not a certificate, or have a part that this reader does not support.
pub fn read(der: &[u8]) -> Result<Certificate, Error> {
    if der.len() > MAX_BYTES {
        return Err(Error { part: "certificate", reason: Reason::Length });
    }
    let mut outer = Der::whole(der, SEQUENCE, "certificate")?;
    let mut fields = Der { rest: outer.take(SEQUENCE)?.content, part: "tbsCertificate" };
    outer.take(SEQUENCE)?;
    outer.take(BIT_STRING)?;
    outer.end()?;
    if fields.peek() == Some(VERSION) {
        fields.take(VERSION)?;
    }
    let serial = serial(fields.part("serialNumber").take(INTEGER)?.content)?;
    fields.part("signature").take(SEQUENCE)?;
    let issuer = fields.part("issuer").take(SEQUENCE)?.whole.to_vec();
    let mut validity = Der { rest: fields.part("validity").take(SEQUENCE)?.content, part: "validity" };
    let (not_before, not_after) = (time(&mut validity)?, time(&mut validity)?);
    validity.end()?;
    let subject = fields.part("subject").take(SEQUENCE)?;
    let public_key = fields.part("subjectPublicKeyInfo").take(SEQUENCE)?.whole.to_vec();
    let mut certificate = Certificate {
        serial,
        issuer,
        subject: subject.whole.to_vec(),
        not_before,
        not_after,
        common_name: None,
        organizations: Vec::new(),
        dns_names: Vec::new(),
        addresses: Vec::new(),
        public_key,
    };
    name(subject.content, &mut certificate)?;
    // Only the obsolete unique identifiers come before the extensions.
    fields.part = "extensions";
    while !fields.rest.is_empty() {
        let field = fields.next()?;
        if field.tag == EXTENSIONS {
            fields.end()?;
            extensions(field.content, &mut certificate)?;
        }
    }
    Ok(certificate)
}

/// Returns the serial number without leading zeros.
fn serial(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let positive = match bytes {
        // Zero is not a valid serial number, but occurs.
        [0] => bytes,
        [0, second, ..] if second & 0x80 != 0 => &bytes[1..],
        [first, ..] if *first != 0 && first & 0x80 == 0 => bytes,
        _ => return Err(Error { part: "serialNumber", reason: Reason::Encoding }),
    };
    Ok(positive.to_vec())
}

/// Reads the texts of the subject, which is a sequence of sets of type-value pairs.
fn name(content: &[u8], certificate: &mut Certificate) -> Result<(), Error> {
    let mut sets = Der { rest: content, part: "subject" };
    while !sets.rest.is_empty() {
        let mut pairs = Der { rest: sets.take(SET)?.content, ..sets };
        while !pairs.rest.is_empty() {
            let mut pair = Der { rest: pairs.take(SEQUENCE)?.content, ..pairs };
            let (kind, value) = (pair.take(OID)?.content, pair.next()?);
            pair.end()?;
            if kind == COMMON_NAME {
                // Reject two common names, because programs disagree about which of them applies.
                if certificate.common_name.replace(text(value, "subject")?).is_some() {
                    return Err(Error { part: "subject", reason: Reason::Twice });
                }
            } else if kind == ORGANIZATION {
                certificate.organizations.push(text(value, "subject")?);
            }
        }
    }
    Ok(())
}

fn extensions(content: &[u8], certificate: &mut Certificate) -> Result<(), Error> {
    let mut list = Der::whole(content, SEQUENCE, "extensions")?;
    let mut seen = false;
    while !list.rest.is_empty() {
        let mut extension = Der { rest: list.take(SEQUENCE)?.content, ..list };
        let kind = extension.take(OID)?.content;
        if extension.peek() == Some(BOOLEAN) {
            extension.take(BOOLEAN)?;
        }
        let value = extension.take(OCTET_STRING)?.content;
        extension.end()?;
        if kind == ALTERNATIVE_NAMES {
            if seen {
                return Err(Error { part: "subjectAltName", reason: Reason::Twice });
            }
            seen = true;
            alternative_names(value, certificate)?;
        }
    }
    Ok(())
}

fn alternative_names(value: &[u8], certificate: &mut Certificate) -> Result<(), Error> {
    const PART: &str = "subjectAltName";
    let mut names = Der::whole(value, SEQUENCE, PART)?;
    while !names.rest.is_empty() {
        let name = names.next()?;
        match name.tag {
            DNS_NAME => certificate.dns_names.push(text(Element { tag: IA5_STRING, ..name }, PART)?),
            IP_ADDRESS => {
                let v4 = <[u8; 4]>::try_from(name.content).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(name.content).map(IpAddr::from));
                certificate.addresses.push(address.map_err(|_| names.wrong())?);
            }
            // Mail addresses, URIs and others.
            _ => {}
        }
    }
    Ok(())
}

fn text(value: Element<'_>, part: &'static str) -> Result<String, Error> {
    let wrong = Error { part, reason: Reason::Text };
    let text = std::str::from_utf8(value.content).map_err(|_| wrong)?;
    match value.tag {
        UTF8_STRING => Ok(text.to_owned()),
        PRINTABLE_STRING | IA5_STRING if text.is_ascii() => Ok(text.to_owned()),
        _ => Err(wrong),
    }
}

/// Reads a time: `YYMMDDhhmmssZ` (years 1950 to 2049) or `YYYYMMDDhhmmssZ` (RFC 5280, 4.1.2.5).
fn time(fields: &mut Der<'_>) -> Result<Timestamp, Error> {
    let wrong = Error { part: "validity", reason: Reason::Time };
    let element = fields.next()?;
    let digits = element.content.strip_suffix(b"Z").filter(|d| d.iter().all(u8::is_ascii_digit)).ok_or(wrong)?;
    let pair = |at: usize| digits.get(at..at + 2).map(|d| (d[0] - b'0') * 10 + (d[1] - b'0')).ok_or(wrong);
    let (year, at) = match (element.tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = i16::from(pair(0)?);
            (if year < 50 { 2000 + year } else { 1900 + year }, 2)
        }
        (GENERALIZED_TIME, 14) => (i16::from(pair(0)?) * 100 + i16::from(pair(2)?), 4),
        _ => return Err(wrong),
    };
    let [month, day, hour, minute, second] = [pair(at)?, pair(at + 2)?, pair(at + 4)?, pair(at + 6)?, pair(at + 8)?]
        // Two digits fit into an i8.
        .map(u8::cast_signed);
    let civil = DateTime::new(year, month, day, hour, minute, second, 0).map_err(|_| wrong)?;
    TimeZone::UTC.to_timestamp(civil).map_err(|_| wrong)
}

/// One element: its tag, its content, and all of its bytes.
#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

/// The elements of a sequence that have not been read yet, and the name of the part for errors.
#[derive(Clone, Copy)]
struct Der<'a> {
    rest: &'a [u8],
    part: &'static str,
}

impl<'a> Der<'a> {
    /// Returns the content of the only element of `bytes`.
    fn whole(bytes: &'a [u8], tag: u8, part: &'static str) -> Result<Der<'a>, Error> {
        let mut outer = Der { rest: bytes, part };
        let rest = outer.take(tag)?.content;
        outer.end()?;
        Ok(Der { rest, part })
    }

    /// Sets the name of the part that is read next, for error messages.
    fn part(&mut self, part: &'static str) -> &mut Der<'a> {
        self.part = part;
        self
    }

    fn wrong(&self) -> Error {
        Error { part: self.part, reason: Reason::Encoding }
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads the next element. Its length must be definite and have the shortest form; its tag must be one byte.
    fn next(&mut self) -> Result<Element<'a>, Error> {
        let wrong = self.wrong();
        let [tag, first, rest @ ..] = self.rest else { return Err(wrong) };
        if tag & 0x1f == 0x1f {
            return Err(wrong);
        }
        let (length, size) = match (*first, rest) {
            (0..=0x7f, _) => (usize::from(*first), 0),
            (0x81, [a, ..]) if *a >= 0x80 => (usize::from(*a), 1),
            (0x82, [a, b, ..]) if *a != 0 => (usize::from(u16::from_be_bytes([*a, *b])), 2),
            // A length that needs three bytes or more exceeds `MAX_BYTES`.
            _ => return Err(wrong),
        };
        let content = rest.get(size..size + length).ok_or(wrong)?;
        let (whole, after) = self.rest.split_at(2 + size + length);
        self.rest = after;
        Ok(Element { tag: *tag, content, whole })
    }

    fn take(&mut self, tag: u8) -> Result<Element<'a>, Error> {
        let wrong = self.wrong();
        self.next().and_then(|element| if element.tag == tag { Ok(element) } else { Err(wrong) })
    }

    fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong()) }
    }
}

#[cfg(test)]
mod tests;
