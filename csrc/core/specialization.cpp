#include "core/specialization.hpp"

#include <algorithm>

namespace gdn {
namespace {

std::string name_of(DType dtype) { return to_string(dtype); }
std::string name_of(int64_t number) { return std::to_string(number); }

template <class T>
std::string joined(const std::vector<T>& values, const char* separator) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : separator) + name_of(value);
  return text;
}

template <class T>
void append(std::string& text, const char* field, const std::optional<T>& value) {
  if (value) text += std::string(" ") + field + "=" + name_of(*value);
}

template <class T>
void append(std::string& text, const char* field, const std::vector<T>& values) {
  if (!values.empty()) text += std::string(" ") + field + "=" + joined(values, "|");
}

template <class T>
std::string refuse_field(const char* field, const std::vector<T>& served, const std::optional<T>& wanted) {
  if (!wanted || served.empty() || std::find(served.begin(), served.end(), *wanted) != served.end()) return {};
  return std::string(field) + " must be one of " + joined(served, ", ") + "; got " + name_of(*wanted);
}

}  // namespace

std::string Specialization::to_string() const {
  std::string text = op + "/" + gdn::to_string(device);
  append(text, "act", act);
  append(text, "state", state);
  append(text, "conv", conv);
  append(text, "k", head_k_dim);
  append(text, "v", head_v_dim);
  append(text, "ratio", ratio);
  append(text, "width", conv_width);
  append(text, "drafts", draft_tokens);
  if (record) text += *record ? " record" : " stored";
  if (decode_extras) text += " extras";
  return text;
}

std::string Support::refuse(const Specialization& wanted) const {
  for (const std::string& reason :
       {refuse_field("activation dtype", act, wanted.act), refuse_field("ssm_pool dtype", state, wanted.state),
        refuse_field("conv_pool dtype", conv, wanted.conv), refuse_field("head_k_dim", head_k_dims, wanted.head_k_dim),
        refuse_field("head_v_dim", head_v_dims, wanted.head_v_dim),
        refuse_field("num_v_heads / num_k_heads", ratios, wanted.ratio),
        refuse_field("conv width", conv_widths, wanted.conv_width)})
    if (!reason.empty()) return reason;
  for (const auto& [field, size] :
       {std::pair{"head_k_dim", wanted.head_k_dim}, std::pair{"head_v_dim", wanted.head_v_dim}}) {
    if (!size) continue;
    if (*size % head_dim_multiple != 0 || (max_head_dim != 0 && *size > max_head_dim))
      return std::string(field) + " must be a multiple of " + std::to_string(head_dim_multiple) + " and at most " +
             std::to_string(max_head_dim) + "; got " + std::to_string(*size);
  }
  if (max_draft_tokens != 0 && wanted.draft_tokens && *wanted.draft_tokens > max_draft_tokens)
    return "draft tokens a row must be at most " + std::to_string(max_draft_tokens) + "; got " +
           std::to_string(*wanted.draft_tokens);
  if (record && wanted.record && *record != *wanted.record)
    return std::string("draft tokens must be kept as ") + (*record ? "a record" : "states after each");
  if (wanted.decode_extras && !decode_extras) return "qkvz, norm_weight and track_slots must be None; got a value";
  return {};
}

std::string Support::to_string() const {
  std::string text;
  append(text, "act", act);
  append(text, "state", state);
  append(text, "conv", conv);
  append(text, "k", head_k_dims);
  append(text, "v", head_v_dims);
  append(text, "ratio", ratios);
  append(text, "width", conv_widths);
  if (max_head_dim != 0) text += " head_dim%" + std::to_string(head_dim_multiple) + "<=" + std::to_string(max_head_dim);
  if (max_draft_tokens != 0) text += " drafts<=" + std::to_string(max_draft_tokens);
  if (record) text += *record ? " record" : " stored";
  if (decode_extras) text += " extras";
  return text;
}

}  // namespace gdn
