"""Attributes of predicted fields by the CF conventions (1.11).

t2m                  standard_name "air_temperature", units "degC", ancillary_variables "t2m_standard_error"
t2m_standard_error   standard_name "air_temperature standard_error", units "degC",
                     units_metadata "temperature: difference"
"""

from collections.abc import Mapping
from typing import Any

from bcmdist.api.maps.predicted import NO_LABEL

CONVENTIONS = "CF-1.11"
# Attributes that describe the measured values; predictions do not inherit them.
ABOUT_VALUES = {"actual_range", "valid_range", "valid_min", "valid_max", "ancillary_variables", "missing_value"}
ABOUT_VALUES |= {"flag_values", "flag_meanings", "flag_masks", "_FillValue"}
# Temperature units whose zero is not absolute: differences need `units_metadata` (CF 3.1.2).
ON_A_SCALE = {"degc", "deg_c", "celsius", "degree_celsius", "degrees_celsius", "degree_c", "degrees_c", "°c"}
ON_A_SCALE |= {"degf", "deg_f", "fahrenheit", "degree_fahrenheit", "degrees_fahrenheit", "degree_f", "degrees_f", "°f"}


def variable_of(target, output) -> str:
    """Return the variable name of a predicted quantity: the target's name, with a suffix for all but the main one."""
    return target if output in ("mean", "label") else f"{target}_{output}"


def attributes(target, outputs, found: Mapping[str, Any], source, classes=()) -> dict[str, dict[str, Any]]:
    """Return the attributes of each predicted quantity, by its name.

    Parameters
    ----------
    outputs : names of the predicted quantities
    found : attributes of the target
    source : description of the model that predicts
    classes : class labels, if any
    """
    kept = {name: value for name, value in found.items() if name not in ABOUT_VALUES}
    ancillary = [variable_of(target, output) for output in outputs if output not in ("mean", "label")]
    field = kept | {"ancillary_variables": " ".join(ancillary), "source": source}
    if classes:
        probability = {"long_name": f"probability of {target}", "units": "1"}
        return {"label": field | _flags(classes), "probability": probability}
    return {output: field if output == "mean" else _ancillary(target, output, kept) for output in outputs}


def _flags(classes) -> dict[str, Any]:
    named = isinstance(classes[0], str)
    meanings = " ".join(str(label).replace(" ", "_") for label in classes)
    return {"flag_values": list(range(len(classes)) if named else classes), "flag_meanings": meanings}


def _ancillary(target, output, kept) -> dict[str, Any]:
    """Return the attributes of a standard deviation or a quantile."""
    shared = {name: kept[name] for name in ("units", "grid_mapping") if name in kept}
    if output != "standard_error":
        return shared | {"long_name": f"{output.removeprefix('quantile')} quantile of a new {target}"}
    attrs = shared | {"long_name": f"standard deviation of a new {target}"}
    if "standard_name" in kept:
        attrs["standard_name"] = f"{kept['standard_name']} standard_error"
    if str(kept.get("units", "")).lower().replace(" ", "_") in ON_A_SCALE:
        attrs["units_metadata"] = "temperature: difference"
    return attrs


def encoding(output) -> dict[str, Any]:
    """Return the xarray encoding of an output."""
    return {"_FillValue": NO_LABEL} if output == "label" else {}


def about(data, used) -> list[str]:
    """Return the variables that others refer to as grid mapping or bounds."""
    spoken = [data[name].attrs | data[name].encoding for name in (*used, *data.coords) if name in data.variables]
    named = [word for attrs in spoken for key in ("grid_mapping", "bounds") for word in str(attrs.get(key, "")).split()]
    return [name for name in dict.fromkeys(named) if name in data.data_vars]
