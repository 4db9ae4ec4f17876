//! The keys of ports, buckets and switches in `/openapi.json`, from the tables of keys.

use std::borrow::Cow;

use ringway_api::switch::SWITCH_KEYS;
use ringway_config::keys::{Class, Key, Mutability};
use ringway_config::port::PortKey;
use ringway_config::{KeyScope, Kind};
use serde_json::Value as Json;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, Object, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// Makes descriptions of request bodies from the keys of a scope.
macro_rules! bodies {
    ($($(#[$doc:meta])* $Body:ident, $name:expr, $build:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $Body;

            impl PartialSchema for $Body {
                fn schema() -> RefOr<Schema> {
                    let build: fn() -> ObjectBuilder = $build;
                    build().into()
                }
            }

            impl ToSchema for $Body {
                fn name() -> Cow<'static, str> {
                    $name.into()
                }
            }
        )*
    };
}

bodies! {
    /// The keys of a port, as in `[port.NAME]`.
    PortKeysSchema, "PortKeys", || {
        let name = text("The port's name; only, and necessarily, for a new port.");
        object(KeyScope::Port, "port").property("name", name)
    };
    /// The keys of a bucket, as in `[bucket.NAME]`.
    BucketKeysSchema, "BucketKeys", || object(KeyScope::Bucket, "bucket").required("rate");
    /// The keys of a switch, as in `[switch.NAME]`.
    SwitchKeysSchema, SWITCH_KEYS, || object(KeyScope::Switch, "switch");
}

/// Returns the keys of a scope as the properties of an object.
pub fn object(scope: KeyScope, what: &str) -> ObjectBuilder {
    let about = format!(
        "The keys of a {what}, as in `{}`. Unknown keys are refused. A key of a table can be given alone, with a dot: \
         `\"TABLE.KEY\": VALUE`.",
        scope.section()
    );
    let object = ObjectBuilder::new().description(Some(about));
    scope.keys().iter().fold(object, |object, known| object.property(known.key.name, property(known)))
}

fn property(known: &PortKey) -> Schema {
    let kinds: Vec<&str> = known.kinds.iter().copied().map(Kind::as_str).collect();
    let mut about = known.key.about.to_owned();
    if !kinds.is_empty() {
        about.push_str(&format!(" Of {} ports.", kinds.join(", ")));
    }
    if known.key.mutability == Mutability::Fixed {
        about.push_str(" Cannot change while the port exists.");
    }
    schema(&known.key, about)
}

fn text(about: &str) -> Object {
    ObjectBuilder::new().schema_type(Type::String).description(Some(about)).build()
}

/// Returns the schema of a key's values. `about` is its meaning.
fn schema(key: &Key, about: String) -> Schema {
    let about = format!("{about} The value is {}.", key.shape.text);
    let default = (!key.value.is_null()).then(|| key.value.clone());
    let of_type = |kind: Type| ObjectBuilder::new().schema_type(kind);
    let whole = |low: u64, high: u64| of_type(Type::Integer).minimum(Some(low as f64)).maximum(Some(high as f64));
    let list = |items: Object| ArrayBuilder::new().items(items);
    match &key.shape.class {
        Class::Text => {
            let words = Some(key.shape.words.clone()).filter(|words| !words.is_empty());
            let object = of_type(Type::String).description(Some(about)).default(default);
            object.enum_values(words).into()
        }
        Class::Boolean => of_type(Type::Boolean).description(Some(about)).default(default).into(),
        Class::Integer(low, high) => whole(*low, *high).description(Some(about)).default(default).into(),
        Class::Texts => {
            either(vec![list(of_type(Type::String).build()).into(), of_type(Type::String).into()], about, default)
        }
        Class::Numbers => list(of_type(Type::Integer).build()).description(Some(about)).default(default).into(),
        Class::IntegerOrWord(low, high) => {
            let word = of_type(Type::String).enum_values(Some(key.shape.words.clone()));
            either(vec![whole(*low, *high).into(), word.into()], about, default)
        }
        Class::NumbersOrWord => {
            let types = SchemaType::from_iter([Type::Integer, Type::String]);
            let items = ObjectBuilder::new().schema_type(types.clone()).build();
            let one = ObjectBuilder::new().schema_type(types);
            either(vec![list(items).into(), one.into()], about, default)
        }
        Class::Table(keys) => table(keys).description(Some(about)).into(),
        Class::TableOrWord(keys) => {
            let word = of_type(Type::String).enum_values(Some(key.shape.words.clone()));
            either(vec![table(keys).into(), word.into()], about, default)
        }
    }
}

/// Returns the schema of a table with these keys.
fn table(keys: &[Key]) -> ObjectBuilder {
    let add = |object: ObjectBuilder, key: &Key| object.property(key.name, schema(key, key.about.to_owned()));
    keys.iter().fold(ObjectBuilder::new().schema_type(Type::Object), add)
}

fn either(schemas: Vec<Schema>, about: String, default: Option<Json>) -> Schema {
    let any = AnyOfBuilder::new().description(Some(about)).default(default);
    schemas.into_iter().fold(any, AnyOfBuilder::item).into()
}
