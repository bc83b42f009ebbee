//! A forward proxy for CONNECT with a list of where clients may go: `connect_proxy LISTEN ALLOWED...`, for example
//! `connect_proxy 127.0.0.1:3128 example.com:443`, then `curl -p -x 127.0.0.1:3128 https://example.com/`.
//!
//! Names are looked up by a worker, for that blocks; the tunnel itself stays on the client's shard.

use shardlet::{Exchange, Result, Router, Server, StatusCode, asynchronous, relay, routing::HalfClose};
use shards::net::{SocketAddress, Stream};
use std::{
    net::{SocketAddr, ToSocketAddrs},
    rc::Rc,
    time::Duration,
};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Opens the tunnel, or says why not: 403, 502.
async fn tunnel(x: &mut Exchange, allowed: &[String]) -> Result<()> {
    let target = x.request().target().to_ascii_lowercase();
    if !allowed.contains(&target) {
        return refuse(x, StatusCode::FORBIDDEN, &format!("{target} is not on the list\n"));
    }
    let looked_up = x.blocking({
        let target = target.clone();
        move || target.to_socket_addrs().map(Iterator::collect::<Vec<_>>)
    });
    let addresses = looked_up.await?.unwrap_or_default();
    let Some(upstream) = connect(&addresses).await else {
        return refuse(x, StatusCode::BAD_GATEWAY, &format!("{target} cannot be reached\n"));
    };
    x.open_tunnel()?;
    let moved = relay(x, &upstream).await?;
    println!("{target}: {} bytes forth, {} bytes back", moved.forth, moved.back);
    Ok(())
}

/// A connection to the first address that answers.
async fn connect(addresses: &[SocketAddr]) -> Option<Stream> {
    for address in addresses {
        let address = SocketAddress::from(*address);
        if let Ok(stream) = Stream::connect_within(&address, CONNECT_WITHIN).await {
            return Some(stream);
        }
    }
    None
}

fn refuse(x: &mut Exchange, status: StatusCode, why: &str) -> Result<()> {
    x.response().set_status(status);
    x.response().set_content_type("text/plain; charset=utf-8")?;
    x.write_copy(why.as_bytes())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen: SocketAddress =
        arguments.next().ok_or("usage: connect_proxy LISTEN HOST:PORT ...")?.parse()?;
    let allowed: Vec<String> = arguments.map(|name| name.to_ascii_lowercase()).collect();
    let server = Server::builder().listen(listen).shards(1).start(move |_| {
        let allowed = Rc::new(allowed.clone());
        let handler = asynchronous(async move |x: &mut Exchange| tunnel(x, &allowed).await);
        // What a client sends in one go with its request and its FIN is carried all the same.
        Router::new().connect_with(handler, |route| {
            route.half_close(HalfClose::Tolerate);
        })
    })?;
    println!("listening on {}", server.address());
    server.join();
    Ok(())
}
