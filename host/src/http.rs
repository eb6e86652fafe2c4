//! Metrics and health over HTTP: a few pages that are read and never written.
//!
//! Anybody who reaches the address may connect, so that no client may hold what another needs. A connection waits for its client
//! or is being answered. One that waits has a time limit, and gives its place to a new one when there is no other; each page has
//! places of its own for those who are being answered.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

pub use hyper::StatusCode;

/// What the Prometheus text format calls itself.
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page for people.
pub const HTML_CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// Plain text.
pub const TEXT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";

/// Status, content type and body.
pub type Made = (StatusCode, &'static str, String);

/// Makes a page, of the content types that the client accepts (RFC 9110, `Accept`; empty if it says nothing). It runs on a
/// thread that may block.
pub type Page = Box<dyn Fn(&str) -> Made + Send + Sync>;

/// How much a server takes on.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// How many clients may be connected. A further one takes the place of that which has let the server wait longest.
    pub connection_limit: usize,
    /// How many clients may be answered at a time with the same page.
    pub page_limit: usize,
    /// How long a client may take to read an answer and send its next request, or to send the first one.
    pub client_timeout: Duration,
    /// How many bytes a request may have, at least 8192.
    pub header_size: usize,
    /// After how long a connection ends even if it is used.
    pub lifetime: Duration,
    /// How long pages may take to be made once the server is told to stop.
    pub stop_deadline: Duration,
    /// How long a client may take to read its answer then.
    pub stop_timeout: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connection_limit: 32,
            page_limit: 4,
            client_timeout: Duration::from_secs(10),
            header_size: 16 << 10,
            lifetime: Duration::from_secs(300),
            stop_deadline: Duration::from_secs(3),
            stop_timeout: Duration::from_millis(200),
        }
    }
}

/// The server of `/metrics`, `/healthz` and whatever else it is given.
pub struct HttpServer {
    listener: TcpListener,
    pages: Vec<(&'static str, Page)>,
    options: HttpOptions,
}

impl HttpServer {
    /// A server at an address. Port 0 is any free one, see [`HttpServer::address`]. To be called within a tokio runtime.
    pub fn bind(address: SocketAddr, options: HttpOptions) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: TcpListener::from_std(listener)?, pages: Vec::new(), options })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Adds a page that is the same for all.
    pub fn page(self, path: &'static str, page: impl Fn() -> Made + Send + Sync + 'static) -> Self {
        self.negotiated_page(path, move |_| page())
    }

    /// Adds a page that depends on what the client accepts.
    pub fn negotiated_page(mut self, path: &'static str, page: impl Fn(&str) -> Made + Send + Sync + 'static) -> Self {
        self.pages.push((path, Box::new(page)));
        self
    }

    /// Serves until `stop` comes, then lets requests end, up to the deadline.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, pages, options } = self;
        let limited = |(path, page)| Limited { path, page, places: Arc::new(Semaphore::new(options.page_limit)) };
        let pages: Arc<[Limited]> = pages.into_iter().map(limited).collect();
        let (stopping, stop_of_connections) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut clients = Clients { limit: options.connection_limit, connected: Vec::new() };
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = listener.accept() => match accepted {
                    Ok((_, peer)) if !clients.make_room() => {
                        warn!(%peer, limit = options.connection_limit, "too many HTTP connections, closing the newest");
                    }
                    Ok((stream, _)) => {
                        let waiting = Arc::new(Waiting::new());
                        let stop = stop_of_connections.clone();
                        let served = serve(stream, Arc::clone(&pages), options.clone(), Arc::clone(&waiting), stop);
                        clients.connected.push((waiting, connections.spawn(served)));
                    }
                    Err(error) => {
                        warn!(%error, "cannot accept an HTTP connection");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(listener);
        stopping.send_replace(true);
        if timeout(options.stop_deadline, async { while connections.join_next().await.is_some() {} }).await.is_err() {
            info!(connections = connections.len(), "cutting HTTP connections off that did not end in time");
            connections.shutdown().await;
        }
    }
}

/// A page, and places for those who are being answered with it.
struct Limited {
    path: &'static str,
    page: Page,
    places: Arc<Semaphore>,
}

/// Who is connected.
struct Clients {
    limit: usize,
    connected: Vec<(Arc<Waiting>, AbortHandle)>,
}

impl Clients {
    /// Makes room for one more client, for which the one goes that has let the server wait longest. False if all are being answered.
    fn make_room(&mut self) -> bool {
        self.connected.retain(|(_, connection)| !connection.is_finished());
        if self.connected.len() < self.limit {
            return true;
        }
        let waiting =
            self.connected.iter().enumerate().filter_map(|(index, (waiting, _))| Some((waiting.since()?, index)));
        let Some((_, longest)) = waiting.min() else { return false };
        let (_, connection) = self.connected.swap_remove(longest);
        connection.abort();
        true
    }
}

/// Since when a connection waits for its client: to send a request, or to read an answer.
struct Waiting {
    connected: Instant,
    /// Milliseconds from then, plus one; 0 while the client waits for an answer.
    since: AtomicU64,
}

impl Waiting {
    fn new() -> Self {
        Self { connected: Instant::now(), since: AtomicU64::new(1) }
    }

    fn ends(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    fn begins(&self) {
        let elapsed = u64::try_from(self.connected.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.since.store(elapsed + 1, Ordering::Relaxed);
    }

    fn since(&self) -> Option<Instant> {
        let elapsed = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.connected + Duration::from_millis(elapsed))
    }

    /// Ends when the client has let the server wait for so long.
    async fn lasts(&self, limit: Duration) {
        loop {
            let now = Instant::now();
            let end = self.since().unwrap_or(now) + limit;
            if end <= now {
                return;
            }
            sleep_until(end).await;
        }
    }
}

async fn serve(
    stream: TcpStream,
    pages: Arc<[Limited]>,
    options: HttpOptions,
    waiting: Arc<Waiting>,
    mut stopping: watch::Receiver<bool>,
) {
    let waits = Arc::clone(&waiting);
    let service = service_fn(move |request| {
        let (pages, waits) = (Arc::clone(&pages), Arc::clone(&waits));
        async move {
            waits.ends();
            let response = answer(request, pages).await;
            waits.begins();
            response
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(options.client_timeout)
            .max_buf_size(options.header_size.max(8192))
            .serve_connection(TokioIo::new(stream), service)
    );
    let result = tokio::select! {
        result = connection.as_mut() => result,
        // What it yields is locked, and not to be held while the connection ends.
        () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                result = connection => result,
                () = waiting.lasts(options.stop_timeout) => Ok(()),
            }
        }
        () = waiting.lasts(options.client_timeout) => Ok(()),
        () = sleep(options.lifetime) => {
            connection.as_mut().graceful_shutdown();
            timeout(options.client_timeout, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        debug!(%error, "HTTP connection ended badly");
    }
}

async fn answer(request: Request<Incoming>, pages: Arc<[Limited]>) -> Result<Response<Full<Bytes>>, Infallible> {
    let Some(index) = pages.iter().position(|page| page.path == request.uri().path()) else {
        let known: Vec<_> = pages.iter().map(|page| page.path).collect();
        let text = format!("not found, there is {}\n", known.join(", "));
        return Ok(response(StatusCode::NOT_FOUND, TEXT_CONTENT_TYPE, text));
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT_CONTENT_TYPE, "only GET and HEAD\n".to_owned());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refusal);
    }
    // It goes with the thread that makes the page, not with the client, who may be gone before.
    let Ok(place) = Arc::clone(&pages[index].places).try_acquire_owned() else {
        let text = "busy: as many requests for this page are being answered as may be\n".to_owned();
        return Ok(response(StatusCode::SERVICE_UNAVAILABLE, TEXT_CONTENT_TYPE, text));
    };
    let accept = accepted(&request);
    let page = spawn_blocking(move || {
        let _place = place;
        catch_unwind(AssertUnwindSafe(|| (pages[index].page)(&accept))).ok()
    })
    .await;
    Ok(match page {
        Ok(Some((status, content_type, body))) => response(status, content_type, body),
        _ => {
            warn!(path = request.uri().path(), "a page could not be made");
            let text = "the agent failed to make this page\n".to_owned();
            response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_CONTENT_TYPE, text)
        }
    })
}

/// All that the client accepts, in one list.
fn accepted(request: &Request<Incoming>) -> String {
    let values: Vec<_> = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Sender, bounded};
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    struct Running {
        address: SocketAddr,
        /// A page hangs until this is dropped.
        _hangs: Sender<()>,
        stop: oneshot::Sender<()>,
        task: JoinHandle<()>,
    }

    fn start(options: HttpOptions) -> Running {
        let (hangs, hanging) = bounded(0);
        let server = HttpServer::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options)
            .unwrap()
            .page("/metrics", || (StatusCode::OK, METRICS_CONTENT_TYPE, "sluice_up 1\n".to_owned()))
            .page("/readyz", || (StatusCode::SERVICE_UNAVAILABLE, TEXT_CONTENT_TYPE, "not yet\n".to_owned()))
            .page("/broken", || panic!("on purpose"))
            .page("/large", || (StatusCode::OK, TEXT_CONTENT_TYPE, "x".repeat(32 << 20)))
            .page("/hanging", move || {
                hanging.recv().unwrap_err();
                (StatusCode::OK, TEXT_CONTENT_TYPE, String::new())
            })
            .page("/slow", || {
                std::thread::sleep(Duration::from_millis(300));
                (StatusCode::OK, TEXT_CONTENT_TYPE, "at last\n".to_owned())
            });
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async { stopped.await.unwrap_or_default() }));
        Running { address, _hangs: hangs, stop, task }
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        // A reset after the reply is as good as an end.
        stream.read_to_string(&mut reply).await.unwrap_or_default();
        reply
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
    }

    #[tokio::test]
    async fn pages_come_with_status_type_and_length() {
        let server = start(HttpOptions::default());
        let metrics = get(server.address, "/metrics?name=x").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{metrics}");
        assert!(metrics.contains("content-length: 12\r\n"), "{metrics}");
        assert!(metrics.ends_with("\r\n\r\nsluice_up 1\n"), "{metrics}");
        let head = ask(server.address, "HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(head.contains("content-length: 12\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(get(server.address, "/readyz").await.starts_with("HTTP/1.1 503 "));
    }

    #[tokio::test]
    async fn other_paths_and_methods_are_refused() {
        let server = start(HttpOptions::default());
        assert!(get(server.address, "/").await.starts_with("HTTP/1.1 404 "));
        let post = ask(
            server.address,
            "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        )
        .await;
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("allow: GET, HEAD\r\n"), "{post}");
    }

    #[tokio::test]
    async fn a_page_that_panics_is_an_error_and_the_server_lives() {
        let server = start(HttpOptions::default());
        assert!(get(server.address, "/broken").await.starts_with("HTTP/1.1 500 "));
        assert!(get(server.address, "/metrics").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn a_client_that_is_slow_or_sends_too_much_is_cut_off() {
        let server = start(HttpOptions { client_timeout: Duration::from_millis(100), ..HttpOptions::default() });
        assert_eq!(ask(server.address, "GET /metr").await, "");
        let huge = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        let reply = ask(server.address, &huge).await;
        assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 431 "), "{reply}");
    }

    #[tokio::test]
    async fn a_new_client_takes_the_place_of_the_one_that_is_waited_for_longest() {
        let server = start(HttpOptions { connection_limit: 2, ..HttpOptions::default() });
        let address = server.address;
        // One says nothing, one reads nothing.
        let mut silent = TcpStream::connect(address).await.unwrap();
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        deaf.read_exact(&mut [0; 12]).await.unwrap();
        assert!(get(address, "/metrics").await.starts_with("HTTP/1.1 200 "));
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or_default(), 0, "it was closed");
        // Who is answered keeps its place.
        let slow = [(); 2].map(|()| tokio::spawn(async move { get(address, "/slow").await }));
        for answer in slow {
            assert!(answer.await.unwrap().ends_with("at last\n"));
        }
        deaf.read_to_end(&mut Vec::new()).await.unwrap_or_default();
    }

    #[tokio::test]
    async fn pages_that_hang_hold_up_no_other_page() {
        let server = start(HttpOptions { page_limit: 2, ..HttpOptions::default() });
        let address = server.address;
        let mut hanging = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /hanging HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            hanging.push(stream);
        }
        while !get(address, "/hanging").await.starts_with("HTTP/1.1 503 ") {}
        // The places stay with the page also when its clients are gone.
        drop(hanging);
        assert!(get(address, "/hanging").await.ends_with("as may be\n"));
        assert!(get(address, "/metrics").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn clients_that_do_not_read_hold_up_no_stop() {
        let server = start(HttpOptions { stop_deadline: Duration::from_secs(60), ..HttpOptions::default() });
        let mut deaf = Vec::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            stream.read_exact(&mut [0; 12]).await.unwrap();
            deaf.push(stream);
        }
        server.stop.send(()).unwrap();
        timeout(Duration::from_secs(20), server.task).await.expect("it ends long before its deadline").unwrap();
    }

    #[tokio::test]
    async fn a_stop_lets_the_request_in_hand_end_and_idle_clients_go() {
        let server = start(HttpOptions::default());
        let _idle = TcpStream::connect(server.address).await.unwrap();
        let address = server.address;
        let slow = tokio::spawn(async move { get(address, "/slow").await });
        sleep(Duration::from_millis(100)).await;
        server.stop.send(()).unwrap();
        timeout(Duration::from_secs(2), server.task).await.unwrap().unwrap();
        assert!(slow.await.unwrap().ends_with("at last\n"));
        assert!(TcpStream::connect(server.address).await.is_err());
    }
}
