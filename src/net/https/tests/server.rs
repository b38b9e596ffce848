//! A server with TLS and HTTP/2 on its own thread, which passes each request to the test; and certificates for it.

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// More than the buffers of a socket hold.
pub const WINDOW: u32 = 32 << 20;

/// A certificate authority.
pub struct Ca {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct Certified {
    pub certificate: String,
    pub key: String,
}

impl Ca {
    /// Creates a CA. All CAs have the same name, like the CAs of different clusters.
    pub fn new() -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Ca { pem, issuer: Issuer::new(params, key) }
    }

    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()
    }

    /// Issues a server certificate, valid from the first year to the second.
    pub fn server(&self, name: &str, years: (i32, i32)) -> Certified {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    pub fn client(&self, name: &str) -> Certified {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Issues the serving certificate of a node with these names, for a key in PEM, valid from the first year to the
    /// second.
    pub fn serving(&self, node: &str, key: &str, names: &[&str], years: (i32, i32)) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.signed_by(&KeyPair::from_pem(key).unwrap(), &self.issuer).unwrap().pem()
    }

    fn sign(&self, params: CertificateParams) -> Certified {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certified { certificate, key: key.serialize_pem() }
    }
}

impl Certified {
    pub fn identity(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        (vec![certificate], PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap())
    }
}

pub struct Options {
    pub certified: Certified,
    /// The CA whose certificates clients must have.
    pub client_ca: Option<CertificateDer<'static>>,
    pub protocol: &'static [u8],
    pub max_streams: u32,
}

/// A complete request.
pub struct Exchange {
    pub head: Request<()>,
    pub body: Vec<u8>,
    pub respond: SendResponse<Bytes>,
    /// The number of the connection, from 0.
    pub connection: usize,
}

impl Exchange {
    /// Sends a complete answer.
    pub fn answer(mut self, status: u16, headers: &[(&'static str, &str)], body: &str) {
        let mut stream = self.begin(status, headers);
        stream.send_data(Bytes::copy_from_slice(body.as_bytes()), true).unwrap();
    }

    /// Sends the head of an answer.
    pub fn begin(&mut self, status: u16, headers: &[(&'static str, &str)]) -> SendStream<Bytes> {
        let mut response = Response::builder().status(status).body(()).unwrap();
        for (name, value) in headers {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        self.respond.send_response(response, false).unwrap()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.head.headers()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).map(|value| value.to_str().unwrap())
    }
}

pub enum Control {
    /// Sends a GOAWAY on every connection. Requests in flight continue.
    Leave,
    /// Closes every connection.
    Close,
    /// Does not read or write until `Thaw`.
    Freeze,
    Thaw,
    End,
}

pub struct Server {
    pub address: SocketAddr,
    pub requests: Receiver<Exchange>,
    /// A command, and the channel that confirms it.
    control: Sender<(Control, Sender<()>)>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(options: &Options) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = channel();
        let (control, orders) = channel();
        let (config, max_streams) = (config(options), options.max_streams);
        let thread = std::thread::spawn(move || run(&listener, &config, max_streams, &sender, &orders));
        Server { address, requests, control, thread: Some(thread) }
    }

    /// Sends a command, and returns when the server has carried it out.
    pub fn control(&self, control: Control) {
        let (confirm, confirmed) = channel();
        let _ = self.control.send((control, confirm));
        let _ = confirmed.recv();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control(Control::End);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn config(options: &Options) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match &options.client_ca {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(ca.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let (chain, key) = options.certified.identity();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![options.protocol.to_vec()];
    Arc::new(config)
}

enum Link {
    Handshake(Pin<Box<server::Handshake<Tls, Bytes>>>),
    Open { h2: Box<server::Connection<Tls, Bytes>>, reading: Vec<Reading> },
    Closed,
}

struct Reading {
    head: Request<()>,
    stream: RecvStream,
    body: Vec<u8>,
    respond: SendResponse<Bytes>,
}

fn run(
    listener: &TcpListener,
    config: &Arc<ServerConfig>,
    max_streams: u32,
    requests: &Sender<Exchange>,
    orders: &Receiver<(Control, Sender<()>)>,
) {
    let mut links: Vec<Link> = Vec::new();
    let mut frozen = false;
    loop {
        match orders.try_recv() {
            Ok((order, confirm)) => {
                match order {
                    Control::Leave => {
                        for link in &mut links {
                            if let Link::Open { h2, .. } = link {
                                h2.graceful_shutdown();
                            }
                        }
                    }
                    Control::Close => links.iter_mut().for_each(|link| *link = Link::Closed),
                    Control::Freeze => frozen = true,
                    Control::Thaw => frozen = false,
                    Control::End => return,
                }
                let _ = confirm.send(());
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {}
        }
        if !frozen {
            while let Ok((socket, _)) = listener.accept() {
                socket.set_nonblocking(true).unwrap();
                let stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), socket);
                let handshake = server::Builder::new()
                    .max_concurrent_streams(max_streams)
                    .initial_window_size(WINDOW)
                    .initial_connection_window_size(WINDOW)
                    .handshake::<Tls, Bytes>(Tls(stream));
                links.push(Link::Handshake(Box::pin(handshake)));
            }
            for (connection, link) in links.iter_mut().enumerate() {
                while advance(link, connection, requests) {}
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Advances a connection. Returns true if it must be called again at once.
fn advance(link: &mut Link, connection: usize, requests: &Sender<Exchange>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    match link {
        Link::Closed => false,
        Link::Handshake(handshake) => match handshake.as_mut().poll(&mut cx) {
            Poll::Ready(Ok(h2)) => {
                *link = Link::Open { h2: Box::new(h2), reading: Vec::new() };
                true
            }
            Poll::Ready(Err(_)) => {
                *link = Link::Closed;
                false
            }
            Poll::Pending => false,
        },
        Link::Open { h2, reading } => {
            let accepted = h2.poll_accept(&mut cx);
            let mut more = false;
            match accepted {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let (parts, stream) = request.into_parts();
                    reading.push(Reading { head: Request::from_parts(parts, ()), stream, body: Vec::new(), respond });
                    more = true;
                }
                Poll::Ready(Some(Err(_)) | None) => {
                    *link = Link::Closed;
                    return false;
                }
                Poll::Pending => {}
            }
            for mut read in std::mem::take(reading) {
                loop {
                    match read.stream.poll_data(&mut cx) {
                        Poll::Ready(Some(Ok(bytes))) => {
                            read.stream.flow_control().release_capacity(bytes.len()).unwrap();
                            read.body.extend_from_slice(&bytes);
                            more = true;
                        }
                        Poll::Ready(Some(Err(_))) => break,
                        Poll::Ready(None) => {
                            let Reading { head, body, respond, .. } = read;
                            let _ = requests.send(Exchange { head, body, respond, connection });
                            break;
                        }
                        Poll::Pending => {
                            reading.push(read);
                            break;
                        }
                    }
                }
            }
            more
        }
    }
}

struct Tls(StreamOwned<ServerConnection, TcpStream>);

fn poll<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}

impl AsyncRead for Tls {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let result = self.0.read(buffer.initialize_unfilled());
        poll(result.map(|count| buffer.advance(count)))
    }
}

impl AsyncWrite for Tls {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        poll(self.0.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll(self.0.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
