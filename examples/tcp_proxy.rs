//! A TCP proxy from the `shards` API alone: `tcp_proxy LISTEN UPSTREAM`, addresses or `unix:/path`.
//!
//! Half-close, back-pressure and byte counts come with `relay`.

use shards::{
    Shard, Shards,
    net::{AcceptEvents, AcceptMode, Binding, Socket, SocketAddress, Stream, relay},
};
use std::{error::Error, rc::Rc, time::Duration};

struct Proxy {
    upstream: SocketAddress,
}

impl AcceptEvents for Proxy {
    fn on_accepted(&self, shard: &Shard, socket: Socket) {
        shard.spawn(forward(Stream::new(socket), self.upstream.clone()));
    }
}

async fn forward(client: Stream, upstream: SocketAddress) {
    let server = match Stream::connect_within(&upstream, Duration::from_secs(3)).await {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            return client.socket().reset_on_close();
        }
    };
    let moved = relay(&client, &server).await;
    println!("{} bytes forth, {} bytes back", moved.forth, moved.back);
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        return Err("usage: tcp_proxy LISTEN UPSTREAM, for example 127.0.0.1:8000 127.0.0.1:80".into());
    };
    let upstream: SocketAddress = upstream.parse()?;
    let binding = Binding::bind(&listen.parse()?, 1, AcceptMode::ReusePort, 1024)?;
    println!("listening on {}", binding.address());
    let shards = Shards::builder().shards(1).name("proxy").start(move |shard| {
        let (binding, upstream) = (binding.clone(), upstream.clone());
        async move {
            let listener =
                binding.listen(&shard, Rc::new(Proxy { upstream })).expect("one shard was counted");
            shard.stopped().await;
            drop(listener);
        }
    })?;
    for end in shards.join() {
        end.result?;
    }
    Ok(())
}
