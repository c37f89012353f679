//! The files of `google/protobuf/`, reduced to the declarations that affect the wire format.

/// The text of the file under this path.
pub(crate) fn text(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
}

const FILES: &[(&str, &str)] = &[
    ("google/protobuf/any.proto", include_str!("well_known/any.proto")),
    ("google/protobuf/api.proto", include_str!("well_known/api.proto")),
    ("google/protobuf/compiler/plugin.proto", include_str!("well_known/plugin.proto")),
    ("google/protobuf/cpp_features.proto", include_str!("well_known/cpp_features.proto")),
    ("google/protobuf/descriptor.proto", include_str!("well_known/descriptor.proto")),
    ("google/protobuf/duration.proto", include_str!("well_known/duration.proto")),
    ("google/protobuf/empty.proto", include_str!("well_known/empty.proto")),
    ("google/protobuf/field_mask.proto", include_str!("well_known/field_mask.proto")),
    ("google/protobuf/go_features.proto", include_str!("well_known/go_features.proto")),
    ("google/protobuf/java_features.proto", include_str!("well_known/java_features.proto")),
    ("google/protobuf/source_context.proto", include_str!("well_known/source_context.proto")),
    ("google/protobuf/struct.proto", include_str!("well_known/struct.proto")),
    ("google/protobuf/timestamp.proto", include_str!("well_known/timestamp.proto")),
    ("google/protobuf/type.proto", include_str!("well_known/type.proto")),
    ("google/protobuf/wrappers.proto", include_str!("well_known/wrappers.proto")),
];
