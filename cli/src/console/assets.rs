//! Files that are part of the program.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

struct Asset {
    name: &'static str,
    media_type: &'static str,
    content: &'static [u8],
    /// A hash of the content, which is in its URL.
    tag: String,
}

macro_rules! assets {
    ($($name:literal, $path:literal, $media_type:literal;)*) => {
        [$(($name, $media_type, &include_bytes!(concat!("../../assets/", $path))[..])),*]
    };
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let all = assets! {
        "console.css", "console.css", "text/css; charset=utf-8";
        "console.js", "console.js", "text/javascript; charset=utf-8";
        "icon.svg", "icon.svg", "image/svg+xml";
        "htmx.min.js", "vendor/htmx/htmx.min.js", "text/javascript; charset=utf-8";
        "idiomorph-ext.min.js", "vendor/idiomorph/idiomorph-ext.min.js", "text/javascript; charset=utf-8";
        "uplot.min.js", "vendor/uplot/uPlot.iife.min.js", "text/javascript; charset=utf-8";
        "uplot.min.css", "vendor/uplot/uPlot.min.css", "text/css; charset=utf-8";
    };
    let asset = |(name, media_type, content): (_, _, &'static [u8])| {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let tag = format!("{:016x}", hasher.finish());
        Asset { name, media_type, content, tag }
    };
    all.into_iter().map(asset).collect()
});

/// The path of an asset, which changes with its content.
pub(crate) fn path(name: &str) -> String {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let tag = &asset.expect("it is in the list").tag;
    format!("/assets/{tag}/{name}")
}

pub(super) async fn serve(
    Path((tag, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // A page of another version of the program asks by another tag.
    let caching = match tag == asset.tag {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let tag = format!("\"{}\"", asset.tag);
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == *tag);
    let head = [
        (header::CONTENT_TYPE, asset.media_type.to_owned()),
        (header::CACHE_CONTROL, caching.to_owned()),
        (header::ETAG, tag),
    ];
    match is_known {
        true => (StatusCode::NOT_MODIFIED, head).into_response(),
        false => (head, asset.content).into_response(),
    }
}
