"""Database functions that ``query`` may call: known ones, and the user's list.

Known functions compute from their arguments or describe the session. They have no side effects,
read no files and run no text as SQL. A function that waits, such as ``pg_sleep``, is known only if
the timeout of the statement ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from delf_sql.target import Dialect


def words(text: str) -> frozenset[str]:
    """Split a text at blanks into a set of words."""
    return frozenset(text.split())


_EVERYWHERE: Final = words(
    "abs acos asin atan atan2 ceil ceiling cos cot degrees exp floor ln log log10 mod pi pow "
    "power radians round sign sin sqrt tan avg count max min sum coalesce nullif lower upper "
    "length ltrim rtrim trim replace substr substring concat concat_ws cume_dist dense_rank "
    "first_value lag last_value lead nth_value ntile percent_rank rank row_number date time "
    "current_date current_time current_timestamp char"
)
_POSTGRESQL: Final = words(
    # numbers
    "acosd acosh asind asinh atan2d atand atanh cbrt cosd cosh cotd div erf erfc factorial "
    "gcd lcm log2 min_scale random random_normal scale sind sinh tand tanh to_hex to_bin "
    "to_oct trim_scale trunc width_bucket greatest least "
    # text and bytes
    "ascii bit_count bit_length btrim casefold char_length character_length chr convert "
    "convert_from convert_to crc32 crc32c decode encode format get_bit get_byte initcap "
    "is_normalized left like lpad md5 normalize octet_length overlay parse_ident position "
    "quote_ident quote_literal quote_nullable regexp_count regexp_instr regexp_like "
    "regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table "
    "regexp_substr repeat reverse right rpad set_bit set_byte sha224 sha256 sha384 sha512 "
    "split_part starts_with string_to_array string_to_table strpos text to_ascii translate "
    "unistr similarity word_similarity strict_word_similarity show_trgm unaccent levenshtein "
    "soundex difference metaphone dmetaphone daitch_mokotoff digest hmac gen_salt crypt "
    # dates
    "age clock_timestamp date_add date_bin date_part date_subtract date_trunc extract "
    "isfinite justify_days justify_hours justify_interval localtime localtimestamp make_date "
    "make_interval make_time make_timestamp make_timestamptz now overlaps statement_timestamp "
    "timeofday timezone to_char to_date to_number to_timestamp transaction_timestamp pg_sleep "
    "pg_sleep_for pg_sleep_until "
    # aggregates
    "array_agg any_value bit_and bit_or bit_xor bool_and bool_or corr covar_pop covar_samp "
    "every grouping json_agg json_arrayagg json_object_agg json_objectagg "
    "json_object_agg_strict json_object_agg_unique json_agg_strict jsonb_agg jsonb_agg_strict "
    "jsonb_object_agg jsonb_object_agg_strict jsonb_object_agg_unique mode percentile_cont "
    "percentile_disc range_agg range_intersect_agg regr_avgx regr_avgy regr_count "
    "regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev stddev_pop "
    "stddev_samp string_agg var_pop var_samp variance xmlagg "
    # arrays, ranges, sets
    "array_append array_cat array_dims array_fill array_length array_lower array_ndims "
    "array_position array_positions array_prepend array_remove array_replace array_reverse "
    "array_sample array_shuffle array_sort array_to_string array_upper cardinality daterange "
    "datemultirange enum_first enum_last enum_range generate_series generate_subscripts "
    "int4range int4multirange int8range int8multirange isempty lower_inc lower_inf multirange "
    "nummultirange numrange num_nonnulls num_nulls range_merge trim_array tsmultirange "
    "tsrange tstzmultirange tstzrange unnest upper_inc upper_inf "
    # JSON and XML
    "array_to_json json json_array json_array_elements json_array_elements_text "
    "json_array_length json_build_array json_build_object json_each json_each_text "
    "json_exists json_extract_path json_extract_path_text json_object json_object_keys "
    "json_populate_record json_populate_recordset json_query json_scalar json_serialize "
    "json_strip_nulls json_table json_to_record json_to_recordset json_typeof json_value "
    "jsonb jsonb_array_elements jsonb_array_elements_text jsonb_array_length "
    "jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text jsonb_extract_path "
    "jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_keys jsonb_path_exists "
    "jsonb_path_exists_tz jsonb_path_match jsonb_path_match_tz jsonb_path_query "
    "jsonb_path_query_array jsonb_path_query_array_tz jsonb_path_query_first "
    "jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record "
    "jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls "
    "jsonb_to_record jsonb_to_recordset jsonb_typeof row_to_json to_json to_jsonb "
    "xmlattributes xmlcomment xmlconcat xmlelement xmlexists xmlforest xmlparse xmlpi xmlroot "
    "xmlserialize xpath xpath_exists "
    # text search
    "array_to_tsvector get_current_ts_config jsonb_to_tsvector json_to_tsvector numnode "
    "phraseto_tsquery plainto_tsquery querytree setweight strip to_tsquery to_tsvector "
    "ts_delete ts_filter ts_headline ts_lexize ts_rank ts_rank_cd tsquery_phrase "
    "tsvector_to_array websearch_to_tsquery "
    # geometry and addresses
    "abbrev area box broadcast center circle diagonal diameter family height host hostmask "
    "inet_merge inet_same_family isclosed isopen line lseg macaddr8_set7bit masklen netmask "
    "network npoints path pclose point polygon popen radius set_masklen slope width "
    # identifiers
    "gen_random_uuid gen_random_bytes uuid_generate_v1 uuid_generate_v1mc uuid_generate_v4 "
    "uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 "
    # the server, the session and the catalogue
    "col_description current_catalog current_database current_role current_schema "
    "current_schemas current_setting current_user currval format_type "
    "has_any_column_privilege has_column_privilege has_database_privilege "
    "has_function_privilege has_schema_privilege has_sequence_privilege has_table_privilege "
    "has_type_privilege inet_client_addr inet_client_port inet_server_addr inet_server_port "
    "lastval obj_description pg_backend_pid pg_blocking_pids pg_client_encoding "
    "pg_collation_for pg_column_size pg_conf_load_time pg_database_size "
    "pg_function_is_visible pg_get_constraintdef pg_get_expr pg_get_function_arguments "
    "pg_get_function_identity_arguments pg_get_function_result pg_get_functiondef "
    "pg_get_indexdef pg_get_partkeydef pg_get_ruledef pg_get_serial_sequence "
    "pg_get_triggerdef pg_get_userbyid pg_get_viewdef pg_has_role pg_indexes_size "
    "pg_is_in_recovery pg_postmaster_start_time pg_relation_size pg_size_bytes pg_size_pretty "
    "pg_table_is_visible pg_table_size pg_tablespace_size pg_total_relation_size "
    "pg_type_is_visible pg_typeof row_security_active session_user shobj_description "
    "to_regclass to_regnamespace to_regproc to_regrole to_regtype user version "
    # types, which are functions too
    "bigint bit bool bpchar bytea character dec decimal float float4 float8 halfvec inet int "
    "int2 int4 int8 interval macaddr money name nchar numeric oid real regclass sparsevec "
    "timestamp timestamptz timetz tsquery tsvector uuid varbit varchar vector xml cidr "
    # pgvector
    "cosine_distance inner_product l1_distance l2_distance l2_norm l2_normalize subvector "
    "vector_dims vector_norm"
)
_MYSQL: Final = words(
    "adddate addtime add_months aes_decrypt aes_encrypt any_value ascii bin binary bit_and "
    "bit_count bit_length bit_or bit_xor cast char_length character_length charset chr "
    "coercibility collation column_check column_exists column_get column_json column_list "
    "compress connection_id conv convert convert_tz crc32 crc32c curdate current_role "
    "current_user curtime database date_add date_format date_sub datediff datetime day "
    "dayname dayofmonth dayofweek dayofyear dec decimal default elt export_set extract "
    "extractvalue field find_in_set float format found_rows from_base64 from_days "
    "from_unixtime get_format greatest group_concat grouping hex hour if ifnull inet_aton "
    "inet_ntoa inet6_aton inet6_ntoa insert instr interval is_ipv4 is_ipv4_compat "
    "is_ipv4_mapped is_ipv6 is_uuid isnull json_array json_array_append json_array_insert "
    "json_arrayagg json_compact json_contains json_contains_path json_depth json_detailed "
    "json_equals json_exists json_extract json_insert json_keys json_length json_loose "
    "json_merge json_merge_patch json_merge_preserve json_normalize json_object "
    "json_objectagg json_overlaps json_pretty json_query json_quote json_remove json_replace "
    "json_schema_valid json_search json_set json_storage_size json_table json_type "
    "json_unquote json_valid json_value last_day last_insert_id lcase least left lengthb "
    "localtime localtimestamp locate log2 lpad make_set makedate maketime md5 median "
    "microsecond mid minute month monthname natural_sort_key now numeric nvl nvl2 oct "
    "octet_length ord percentile_cont percentile_disc period_add period_diff position quarter "
    "quote rand random_bytes regexp_instr regexp_like regexp_replace regexp_substr repeat "
    "reverse right row row_count rpad schema sec_to_time second session_user sformat sha sha1 "
    "sha2 soundex space std stddev stddev_pop stddev_samp str_to_date strcmp subdate "
    "substring_index subtime sys_guid sysdate system_user time_format time_to_sec timediff "
    "timestamp timestampadd timestampdiff to_base64 to_char to_days to_seconds truncate ucase "
    "uncompress uncompressed_length unhex unix_timestamp updatexml user utc_date utc_time "
    "utc_timestamp uuid uuid_short uuid_to_bin bin_to_uuid values var_pop var_samp varbinary "
    "varchar variance version week weekday weekofyear weight_string year yearweek "
    # geometry
    "geometrycollection linestring multilinestring multipoint multipolygon point polygon "
    "st_area st_asgeojson st_astext st_aswkt st_asbinary st_buffer st_centroid st_contains "
    "st_convexhull st_crosses st_difference st_dimension st_disjoint st_distance "
    "st_distance_sphere st_endpoint st_envelope st_equals st_geomfromgeojson st_geomfromtext "
    "st_intersection st_intersects st_isvalid st_length st_numpoints st_overlaps "
    "st_pointfromtext st_pointn st_srid st_startpoint st_touches st_union st_within st_x st_y "
    "mbrcontains mbrintersects mbrwithin"
)
_SQLITE: Final = words(
    "-> ->> acosh asinh atanh bm25 changes concat cosh datetime fts5_source_id format glob "
    "group_concat hex highlight ifnull iif if instr json json_array json_array_length "
    "json_each json_error_position json_extract json_group_array json_group_object "
    "json_insert json_object json_patch json_pretty json_quote json_remove json_replace "
    "json_set json_tree json_type json_valid jsonb jsonb_array jsonb_each jsonb_extract "
    "jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove "
    "jsonb_replace jsonb_set jsonb_tree julianday last_insert_rowid like likelihood likely "
    "log2 match matchinfo median octet_length offsets percentile percentile_cont "
    "percentile_disc printf quote random randomblob rtreecheck rtreedepth rtreenode sinh "
    "snippet soundex sqlite_compileoption_get sqlite_compileoption_used sqlite_source_id "
    "sqlite_version strftime string_agg subtype tanh timediff total total_changes trunc "
    "typeof unhex unicode unistr unistr_quote unixepoch unlikely zeroblob generate_series "
    "geopoly_area geopoly_bbox geopoly_json geopoly_overlap geopoly_within "
    # table-valued functions that describe the catalogue
    "pragma_table_info pragma_table_xinfo pragma_table_list pragma_index_list "
    "pragma_index_info pragma_index_xinfo pragma_foreign_key_list pragma_database_list "
    "pragma_collation_list pragma_function_list "
    # types
    "decimal numeric varchar"
)
_DUCKDB: Final = words(
    "acosh add age ago any_value apply approx_count_distinct approx_quantile approx_top_k "
    "arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last "
    "argmax argmin array_agg array_aggr array_aggregate array_append array_apply array_cat "
    "array_concat array_contains array_cosine_distance array_cosine_similarity "
    "array_cross_product array_distance array_distinct array_dot_product array_extract "
    "array_filter array_grade_up array_has array_has_all array_has_any array_indexof "
    "array_inner_product array_intersect array_length array_negative_dot_product "
    "array_negative_inner_product array_pop_back array_pop_front array_position array_prepend "
    "array_push_back array_push_front array_reduce array_resize array_reverse "
    "array_reverse_sort array_select array_slice array_sort array_to_json array_to_string "
    "array_transform array_unique array_value array_where array_zip ascii asinh atanh bar "
    "base64 bin bit_and bit_count bit_length bit_or bit_position bit_xor bitstring "
    "bitstring_agg bool_and bool_or cardinality cbrt century char_length character_length chr "
    "col_description contains corr cosh count_if count_star countif covar_pop covar_samp "
    "current_catalog current_connection_id current_database current_localtime "
    "current_localtimestamp current_role current_schema current_schemas current_setting "
    "current_user currval damerau_levenshtein date_add date_diff date_part date_sub date_trunc "
    "datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear "
    "days_in_month decade decode divide editdist3 element_at encode ends_with entropy enum_code "
    "enum_first enum_last enum_range enum_range_boundary epoch epoch_ms epoch_ns epoch_us "
    "equi_width_bins even factorial fdiv fill first flatten fmod format format_bytes "
    "format_pg_type format_type formatreadabledecimalsize formatreadablesize from_base64 "
    "from_binary from_hex from_json from_json_strict fsum gamma gcd gen_random_uuid "
    "generate_series generate_subscripts geomean geometric_mean get_bit get_current_time "
    "get_current_timestamp grade_up greatest greatest_common_divisor group_concat hamming hash "
    "hex histogram histogram_exact hour ilike_escape instr isfinite isinf isnan isodow isoyear "
    "jaccard jaro_similarity jaro_winkler_similarity json json_array json_array_length "
    "json_contains json_exists json_extract json_extract_path json_extract_path_text "
    "json_extract_string json_group_array json_group_object json_group_structure json_keys "
    "json_merge_patch json_object json_pretty json_quote json_structure json_transform "
    "json_transform_strict json_type json_valid json_value julian kahan_sum kurtosis "
    "kurtosis_pop last last_day lcase lcm least least_common_multiple left left_grapheme len "
    "length_grapheme levenshtein lgamma like_escape list list_aggr list_aggregate "
    "list_any_value list_append list_apply list_approx_count_distinct list_avg list_bit_and "
    "list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains "
    "list_cosine_distance list_cosine_similarity list_count list_distance list_distinct "
    "list_dot_product list_element list_entropy list_extract list_filter list_first "
    "list_grade_up list_has list_has_all list_has_any list_histogram list_indexof "
    "list_inner_product list_intersect list_kurtosis list_kurtosis_pop list_last list_mad "
    "list_max list_median list_min list_mode list_negative_dot_product "
    "list_negative_inner_product list_pack list_position list_prepend list_product list_reduce "
    "list_resize list_reverse list_reverse_sort list_select list_sem list_skewness list_slice "
    "list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform "
    "list_unique list_value list_var_pop list_var_samp list_where list_zip listagg log2 lpad "
    "mad make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns "
    "make_timestamptz map map_concat map_contains map_contains_entry map_contains_value "
    "map_entries map_extract map_extract_value map_from_entries map_keys map_values max_by md5 "
    "md5_number md5_number_lower md5_number_upper mean median microsecond millennium "
    "millisecond min_by minute mismatches mode month monthname multiply nanosecond nextafter "
    "nfc_normalize normalized_interval not_ilike_escape not_like_escape now obj_description "
    "octet_length ord parse_dirname parse_dirpath parse_filename parse_formatted_bytes "
    "parse_path pg_collation_is_visible pg_conf_load_time pg_function_is_visible "
    "pg_get_constraintdef pg_get_expr pg_get_viewdef pg_has_role pg_postmaster_start_time "
    "pg_size_pretty pg_sleep pg_table_is_visible pg_type_is_visible pg_typeof position prefix "
    "printf product quantile quantile_cont quantile_disc quarter random range rank_dense reduce "
    "regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches "
    "regexp_replace regexp_split_to_array regexp_split_to_table regr_avgx regr_avgy regr_count "
    "regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat reservoir_quantile "
    "reverse right right_grapheme round_even roundbankers row row_to_json rpad second sem "
    "session_user set_bit sha1 sha256 shobj_description signbit sinh skewness split split_part "
    "st_asbinary st_astext st_aswkb st_aswkt st_geomfromwkb st_intersects_extent starts_with "
    "stddev stddev_pop stddev_samp str_split str_split_regex strftime string_agg string_split "
    "string_split_regex string_to_array strip_accents strlen strpos strptime struct_concat "
    "struct_contains struct_extract struct_extract_at struct_has struct_indexof struct_insert "
    "struct_keys struct_pack struct_position struct_update struct_values substring_grapheme "
    "subtract suffix sum_no_overflow sumkahan switch tanh time_bucket timezone timezone_hour "
    "timezone_minute to_base to_base64 to_binary to_centuries to_days to_decades to_hex "
    "to_hours to_json to_microseconds to_millennia to_milliseconds to_minutes to_months "
    "to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp "
    "translate trunc try_strptime typeof ucase unbin unhex unicode union_extract union_tag "
    "union_value url_decode url_encode user uuid uuid_extract_timestamp uuid_extract_version "
    "uuidv4 uuidv7 var_pop var_samp variance variant_extract variant_typeof version wavg week "
    "weekday weekofyear weighted_avg xor year yearweek "
    # tables of the catalogue and of values
    "duckdb_columns duckdb_constraints duckdb_databases duckdb_functions duckdb_indexes "
    "duckdb_keywords duckdb_schemas duckdb_sequences duckdb_settings duckdb_tables duckdb_types "
    "duckdb_views histogram_values json_each json_tree pg_timezone_names pragma_database_size "
    "pragma_table_info pragma_version unnest "
    # types
    "bigint bit blob boolean decimal double enum float hugeint int integer interval numeric "
    "real smallint struct text timestamp timestamptz tinyint ubigint union varchar"
)
# Functions of other databases that only read, and for which sqlglot has no class.
_IN_OTHER_DATABASES: Final = words(
    "add_months any_value approx_count_distinct array_agg ascii cast charindex chr convert corr "
    "current_user date_add date_diff date_part date_trunc dateadd datediff datename datepart day "
    "dayofweek dayofyear decode extract getdate greatest group_concat grouping hour iif initcap "
    "instr isnull json_extract json_query json_value last_day least left len listagg locate lpad "
    "md5 median minute month months_between now nvl nvl2 percentile_cont percentile_disc position "
    "quarter regexp_like regexp_replace regexp_substr repeat reverse right rpad second sha1 sha256 "
    "split_part stddev stddev_pop stddev_samp string_agg stuff to_char to_date to_number "
    "to_timestamp translate trunc try_cast var_pop var_samp variance week year "
    "bigint decimal float int integer numeric timestamp varchar"
)
_FUNCTIONS: Final[dict[Dialect, frozenset[str]]] = {
    "postgresql": _EVERYWHERE | _POSTGRESQL,
    "mysql": _EVERYWHERE | _MYSQL,
    "sqlite": _EVERYWHERE | _SQLITE,
    "duckdb": _EVERYWHERE | _DUCKDB,
}

_GRAMMAR: Final = words(
    "all and any array as between by case cast distinct else escape except exists filter for from "
    "having in intersect is join lateral like limit not offset on or order over select set some "
    "then to union using values when where with within"
)
# Keywords of each dialect that precede a parenthesis without being a function.
_GRAMMAR_BY_DIALECT: Final[dict[Dialect, frozenset[str]]] = {
    "postgresql": _GRAMMAR
    | words(
        "columns cube group ilike materialized only passing precision recursive rollup row sets "
        "similar varying xmlnamespaces xmltable zone"
    ),
    "mysql": (_GRAMMAR - {"array", "filter", "set", "to"})
    | words(
        "against columns div index interval key lateral match partition path regexp rlike row "
        "separator xor"
    ),
    "sqlite": _GRAMMAR | words("glob materialized match recursive regexp"),
    "duckdb": _GRAMMAR
    | words(
        "anti asof columns cube exclude glob group ilike include key materialized only positional "
        "qualify recursive rename rollup row semi sets similar"
    ),
}


def known_functions(dialect: Dialect) -> frozenset[str]:
    """Return the functions that ``query`` may call by default."""
    return _FUNCTIONS.get(dialect, _EVERYWHERE | _IN_OTHER_DATABASES)


def grammar_words(dialect: Dialect) -> frozenset[str]:
    """Return keywords that precede a parenthesis without being a function."""
    return _GRAMMAR_BY_DIALECT.get(dialect, _GRAMMAR)


def is_listed(name: str, listed: Iterable[str]) -> bool:
    """Return True if the user allows a function by name or pattern such as ``st_*``."""
    return any(fnmatchcase(name, pattern) for pattern in listed)
