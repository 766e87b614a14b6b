//! Connections: each has a number, and what belongs to it goes with it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

use super::Shared;

/// Counts connections, and bounds them.
pub struct Connections {
    permits: Arc<Semaphore>,
    limit: usize,
    next: AtomicU64,
}

impl Connections {
    /// At most `limit` at a time.
    pub fn new(limit: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(limit)), limit, next: AtomicU64::new(1) }
    }

    /// How many there are.
    pub fn open(&self) -> usize {
        self.limit - self.permits.available_permits()
    }
}

/// What requests know of their connection.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// Its number, from 1; 0 for HTTP.
    pub id: u64,
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    id: u64,
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.sessions.disconnected(self.id);
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        ConnectionInfo { id: self.id }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The system may be out of file descriptors; they come back.
const PAUSE: Duration = Duration::from_millis(50);

/// The next connection, once there may be one more.
async fn accept(listener: &TcpListener, connections: &Connections, shared: &Arc<Shared>) -> (Connection, SocketAddr) {
    loop {
        let Ok(permit) = connections.permits.clone().acquire_owned().await else {
            // Nobody closes it.
            std::future::pending::<()>().await;
            continue;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let id = connections.next.fetch_add(1, Ordering::Relaxed);
                // Small answers are not held back.
                let _ = stream.set_nodelay(true);
                return (Connection { stream, id, shared: shared.clone(), _permit: permit }, peer);
            }
            Err(e) => {
                tracing::warn!("cannot accept a connection: {e}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Connections as they come.
pub fn incoming(
    listener: TcpListener,
    connections: Arc<Connections>,
    shared: Arc<Shared>,
) -> impl Stream<Item = io::Result<Connection>> {
    futures::stream::unfold((listener, connections, shared), |(listener, connections, shared)| async move {
        let (connection, _) = accept(&listener, &connections, &shared).await;
        Some((Ok(connection), (listener, connections, shared)))
    })
}

/// A listener for HTTP, with a bound of its own. Its connections have no sessions.
pub struct Bounded {
    /// The socket.
    pub listener: TcpListener,
    /// Its connections.
    pub connections: Connections,
    /// What they belong to.
    pub shared: Arc<Shared>,
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (mut connection, peer) = accept(&self.listener, &self.connections, &self.shared).await;
        connection.id = 0;
        (connection, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
