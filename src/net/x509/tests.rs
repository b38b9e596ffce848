use super::*;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData, SanType, SerialNumber};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/C=DE/O=First/O=Sec
/// ond/CN=openssl.example" -addext "subjectAltName=DNS:a.example,IP:10.0.0.5,IP:fd00::5,email:x@a.example" -set_serial
/// 0x00c0ffee00112233445566778899aabbcc -days 30000`, OpenSSL 3.0.19.
const OPENSSL: &str = "-----BEGIN CERTIFICATE-----
MIICJDCCAcmgAwIBAgIRAMD/7gARIjNEVWZ3iJmqu8wwCgYIKoZIzj0EAwIwSTEL
MAkGA1UEBhMCREUxDjAMBgNVBAoMBUZpcnN0MRAwDgYDVQQKDAdTZWMgb25kMRgw
FgYDVQQDDA9vcGVuc3NsLmV4YW1wbGUwIBcNMjYxMTI0MTIwODE0WhgPMjEwOTAx
MTMxMjA4MTRaMEkxCzAJBgNVBAYTAkRFMQ4wDAYDVQQKDAVGaXJzdDEQMA4GA1UE
CgwHU2VjIG9uZDEYMBYGA1UEAwwPb3BlbnNzbC5leGFtcGxlMFkwEwYHKoZIzj0C
AQYIKoZIzj0DAQcDQgAEuJV9xaDq0e8dBHgkgK2vfJcWyfOSL4XzKZ/xqOHGblTh
IiWbp0mgqHmT2EKElca7nGGC3GZEyQzpqN5hjgU+7KOBjzCBjDAdBgNVHQ4EFgQU
PGZXL94HaqpomQTNwrRbaTLhcIwwHwYDVR0jBBgwFoAUPGZXL94HaqpomQTNwrRb
aTLhcIwwDwYDVR0TAQH/BAUwAwEB/zA5BgNVHREEMjAwgglhLmV4YW1wbGWHBAoA
AAWHEP0AAAAAAAAAAAAAAAAAAAWBC3hAYS5leGFtcGxlMAoGCCqGSM49BAMCA0kA
MEYCIQCAmrhI/Uzwu8NVGZBIzjzbDrYf1I2IN3DQpb7dynSJWAIhAPqBS1Dv1a0W
NxVj3hRVIAfr8pVqE+/Ju48xDfprhFku
-----END CERTIFICATE-----
";

fn openssl() -> Vec<u8> {
    CertificateDer::from_pem_slice(OPENSSL.as_bytes()).unwrap().to_vec()
}

/// Returns a certificate that rcgen has generated, its key, and its parameters.
fn generated(year: i32, serial: &[u8], names: &[&str]) -> (Vec<u8>, KeyPair, CertificateParams) {
    let mut params = CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).unwrap();
    params.not_before = rcgen::date_time_ymd(year, 2, 28);
    params.not_after = rcgen::date_time_ymd(year + 1, 12, 31);
    params.serial_number = Some(SerialNumber::from_slice(serial));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("größe {year}"));
    params.distinguished_name.push(DnType::OrganizationName, "wherry:edit");
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().der().to_vec(), key, params)
}

#[test]
fn the_values_of_a_certificate_of_openssl_are_read() {
    let read = read(&openssl()).unwrap();
    assert_eq!(read.serial, 0xc0ffee00112233445566778899aabbcc_u128.to_be_bytes());
    // The second time is a GeneralizedTime.
    assert_eq!(read.not_before.to_string(), "2026-11-24T12:08:14Z");
    assert_eq!(read.not_after.to_string(), "2109-01-13T12:08:14Z");
    assert_eq!(read.common_name.as_deref(), Some("openssl.example"));
    assert_eq!(read.organizations, ["First", "Sec ond"]);
    assert_eq!(read.dns_names, ["a.example"]);
    assert_eq!(read.addresses, ["10.0.0.5".parse::<IpAddr>().unwrap(), "fd00::5".parse().unwrap()]);
    assert_eq!(read.issuer, read.subject);
    assert_eq!((read.public_key.len(), read.public_key[0]), (91, SEQUENCE));
}

#[test]
fn the_values_are_the_parameters_of_rcgen() {
    let many: Vec<String> = (0..200).map(|i| format!("host-{i}.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (year, serial, names) in [
        (1951, &[1][..], &[][..]),
        (2026, &[0x7f; 16], &["localhost", "127.0.0.1", "::1"]),
        (2049, &[0xff; 16], &["boat-7.example"]),
        (2050, &[0, 0, 9], &["10.1.2.3"]),
        // The certificate is longer than 256 bytes, and so is its list of names.
        (2100, &[0x80], &many),
    ] {
        let (der, key, params) = generated(year, serial, names);
        let read = read(&der).unwrap();
        let significant = serial.iter().position(|b| *b != 0).unwrap();
        assert_eq!(read.serial, &serial[significant..], "{year}");
        assert_eq!(read.not_before.as_second(), params.not_before.unix_timestamp(), "{year}");
        assert_eq!(read.not_after.as_second(), params.not_after.unix_timestamp(), "{year}");
        assert_eq!(read.common_name, Some(format!("größe {year}")));
        assert_eq!(read.organizations, ["wherry:edit"]);
        assert_eq!(read.public_key, key.subject_public_key_info());
        let mut found: Vec<SanType> =
            read.dns_names.iter().map(|n| SanType::DnsName(n.as_str().try_into().unwrap())).collect();
        found.extend(read.addresses.iter().map(|a| SanType::IpAddress(*a)));
        assert_eq!(found, params.subject_alt_names, "{year}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    for der in [openssl(), generated(2026, &[5; 16], &["localhost", "::1"]).0] {
        assert!(read(&der).is_ok());
        for length in 0..der.len() {
            assert!(read(&der[..length]).is_err(), "{length}");
        }
        assert!(read(&[&der[..], &[0]].concat()).is_err(), "a byte more");
    }
    assert_eq!(read(&vec![0; MAX_BYTES + 1]).unwrap_err().reason, Reason::Length);
}

/// Changes each byte to each other value. No change causes a panic, and a change of the structure before the key
/// causes an error or shows as a different value.
#[test]
fn no_changed_byte_causes_a_panic_or_passes_unnoticed() {
    for der in [openssl(), generated(2026, &[5; 16], &["localhost", "::1"]).0] {
        let good = read(&der).unwrap();
        let key = der.windows(good.public_key.len()).position(|w| w == good.public_key).unwrap();
        let (mut errors, mut unnoticed) = (0, Vec::new());
        for at in 0..der.len() {
            let mut changed = der.clone();
            for value in 0..=255 {
                changed[at] = value;
                match read(&changed) {
                    Err(_) => errors += 1,
                    Ok(read) if read == good && value != der[at] && at < key => unnoticed.push(at),
                    Ok(_) => {}
                }
            }
        }
        assert!(errors > 10_000, "{errors}");
        // The contents of the version and of the signature's algorithm are not read, because webpki checks them.
        unnoticed.dedup();
        assert!(unnoticed.len() < 20, "{unnoticed:?}");
    }
}

/// Encodes a certificate with these parts.
fn certificate(serial: &[u8], times: [(u8, &str); 2], subject: &[u8], extensions: &[u8]) -> Vec<u8> {
    let times = times.map(|(tag, text)| element(tag, text.as_bytes())).concat();
    let fields = [
        element(INTEGER, serial),
        element(SEQUENCE, &[]),
        element(SEQUENCE, &[]),
        element(SEQUENCE, &times),
        element(SEQUENCE, subject),
        element(SEQUENCE, &[]),
        extensions.to_vec(),
    ];
    let outer = [element(SEQUENCE, &fields.concat()), element(SEQUENCE, &[]), element(BIT_STRING, &[0])].concat();
    element(SEQUENCE, &outer)
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = match content.len() {
        n @ 0..=0x7f => vec![n as u8],
        n @ 0x80..=0xff => vec![0x81, n as u8],
        n => [&[0x82][..], &(n as u16).to_be_bytes()].concat(),
    };
    [&[tag][..], &length, content].concat()
}

fn pair(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    element(SET, &element(SEQUENCE, &[element(OID, kind), element(tag, value)].concat()))
}

const TIMES: [(u8, &str); 2] = [(UTC_TIME, "261124000000Z"), (GENERALIZED_TIME, "20500101000000Z")];

fn failure(der: &[u8]) -> (&'static str, Reason) {
    let error = read(der).unwrap_err();
    (error.part, error.reason)
}

#[test]
fn an_invalid_part_is_named() {
    assert!(read(&certificate(&[1], TIMES, &[], &[])).is_ok());
    for serial in [&[][..], &[0x80], &[0, 0x7f], &[0, 0]] {
        assert_eq!(failure(&certificate(serial, TIMES, &[], &[])), ("serialNumber", Reason::Encoding), "{serial:?}");
    }
    for text in ["261124000000", "2611240000Z", "261324000000Z", "260230000000Z", "2611240000+1Z", "26112400000\u{e9}"]
    {
        let times = [(UTC_TIME, text), TIMES[1]];
        assert_eq!(failure(&certificate(&[1], times, &[], &[])), ("validity", Reason::Time), "{text}");
    }
    let two = [pair(COMMON_NAME, UTF8_STRING, b"a"), pair(COMMON_NAME, UTF8_STRING, b"a")].concat();
    assert_eq!(failure(&certificate(&[1], TIMES, &two, &[])), ("subject", Reason::Twice));
    for (tag, bytes) in [(UTF8_STRING, &b"\xff"[..]), (PRINTABLE_STRING, "é".as_bytes()), (0x1e, b"\0a")] {
        let subject = pair(ORGANIZATION, tag, bytes);
        assert_eq!(failure(&certificate(&[1], TIMES, &subject, &[])), ("subject", Reason::Text), "{tag}");
    }
    let extension = |value: &[u8]| {
        let one = element(SEQUENCE, &[element(OID, ALTERNATIVE_NAMES), element(OCTET_STRING, value)].concat());
        move |n: usize| element(EXTENSIONS, &element(SEQUENCE, &one.repeat(n)))
    };
    let names = extension(&element(SEQUENCE, &element(IP_ADDRESS, &[1, 2, 3])));
    assert_eq!(failure(&certificate(&[1], TIMES, &[], &names(1))), ("subjectAltName", Reason::Encoding));
    let names = extension(&element(SEQUENCE, &[]));
    assert_eq!(failure(&certificate(&[1], TIMES, &[], &names(2))), ("subjectAltName", Reason::Twice));
    // A length in a longer form than necessary, an indefinite length, and a tag of several bytes.
    for start in [&[SEQUENCE, 0x81, 1, 0][..], &[SEQUENCE, 0x80, 0, 0], &[0x3f, 0x81, 1, 0]] {
        assert_eq!(failure(start), ("certificate", Reason::Encoding), "{start:?}");
    }
    let shown = Error { part: "subject", reason: Reason::Twice }.to_string();
    assert_eq!(shown, "invalid certificate: subject: more than one value");
}
