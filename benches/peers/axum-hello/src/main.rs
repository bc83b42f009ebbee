//! axum on tokio's current-thread runtime, as its examples set it up.
use axum::{
    body::Bytes,
    routing::{get, post},
    Router,
};
use std::time::Duration;
use tower_http::services::ServeDir;

async fn later() -> &'static str {
    tokio::time::sleep(Duration::ZERO).await;
    "Hello, World!"
}

async fn worker() -> &'static str {
    tokio::task::spawn_blocking(|| "Hello, World!").await.unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let l = common::listener(common::port());
    l.set_nonblocking(true).unwrap();
    let l = tokio::net::TcpListener::from_std(l).unwrap();
    let mut app = Router::new()
        .route("/plaintext", get(|| async { "Hello, World!" }))
        .route("/echo", post(|body: Bytes| async { body }))
        .route("/async", get(later))
        .route("/worker", get(worker));
    if let Ok(root) = std::env::var("ROOT") {
        app = app.fallback_service(ServeDir::new(root));
    }
    axum::serve(l, app).await.unwrap();
}
