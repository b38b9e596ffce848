//! A gRPC health server on all addresses of the lab, with the `h2` crate. Futures are polled by hand, every
//! millisecond.

use bytes::Bytes;
use h2::server;
use http::{HeaderMap, Response};
use std::future::poll_fn;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How the server responds.
#[derive(Clone, Copy)]
pub enum Health {
    /// The status of each service (`HealthCheckResponse.ServingStatus`).
    Status(u8),
    /// A gRPC status other than OK: its code and message.
    Error(u32, &'static str),
    /// Accepts connections and never responds.
    Silent,
}

/// The user agent and the body of a request.
pub type Request = (String, Vec<u8>);

pub struct GrpcServer {
    pub port: u16,
    pub requests: Arc<Mutex<Vec<Request>>>,
    health: Arc<Mutex<Health>>,
}

impl GrpcServer {
    pub fn start(health: Health) -> GrpcServer {
        let listener = TcpListener::bind("0.0.0.0:0").expect("listen");
        let port = listener.local_addr().expect("address").port();
        let (health, requests) = (Arc::new(Mutex::new(health)), Arc::new(Mutex::new(Vec::new())));
        let (of_thread, seen) = (health.clone(), requests.clone());
        // The threads end with the process of the test.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (health, seen) = (of_thread.clone(), seen.clone());
                client.set_nonblocking(true).expect("non-blocking");
                std::thread::spawn(move || drop(block_on(serve(NonBlocking(client), health, seen))));
            }
        });
        GrpcServer { port, requests, health }
    }

    pub fn set(&self, health: Health) {
        *self.health.lock().expect("health") = health;
    }
}

async fn serve(
    client: NonBlocking<TcpStream>,
    health: Arc<Mutex<Health>>,
    seen: Arc<Mutex<Vec<Request>>>,
) -> Result<(), h2::Error> {
    let mut connection = server::handshake(client).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        let health = *health.lock().expect("health");
        if let Health::Silent = health {
            std::thread::sleep(Duration::from_secs(600));
        }
        let agent = request.headers().get("user-agent").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        // The body follows the head on the same connection, which the next `accept` reads.
        let mut body = request.into_body();
        let mut bytes = Vec::new();
        while let Some(data) = poll_fn(|cx| {
            let _ = connection.poll_closed(cx);
            body.poll_data(cx)
        })
        .await
        {
            bytes.extend_from_slice(&data?);
        }
        seen.lock().expect("requests").push((agent, bytes));
        let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
        let mut stream = respond.send_response(head, false)?;
        let mut trailers = HeaderMap::new();
        match health {
            Health::Status(status) => {
                stream.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false)?;
                trailers.insert("grpc-status", 0.into());
            }
            Health::Error(code, message) => {
                trailers.insert("grpc-status", code.into());
                trailers.insert("grpc-message", http::HeaderValue::from_static(message));
            }
            Health::Silent => {}
        }
        stream.send_trailers(trailers)?;
    }
    Ok(())
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A non-blocking socket.
pub struct NonBlocking<S>(pub S);

fn polled<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}

impl<S: io::Read + Unpin> AsyncRead for NonBlocking<S> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = io::Read::read(&mut self.0, buffer.initialize_unfilled());
        polled(read.map(|count| buffer.advance(count)))
    }
}

impl<S: io::Write + Unpin> AsyncWrite for NonBlocking<S> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        polled(io::Write::write(&mut self.0, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
