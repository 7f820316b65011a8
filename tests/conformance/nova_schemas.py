"""Run inside the environment that has Nova: prints what its released code says an answer's body has to be, as JSON.

One row for each operation and range of microversions: method, path, action or null, oldest and newest version or null, the
schema.
"""

import json

from nova.api.openstack.compute import routes


def methods(controller):
    """Its functions by name; one that has another form from some version on is there under the name of each."""
    return {name: getattr(controller, name) for name in dir(controller) if callable(getattr(controller, name))}


def version(bound):
    return None if bound.is_null() else [bound.ver_major, bound.ver_minor]


def rows_of(method, path, action, function):
    for schema, oldest, newest in getattr(getattr(function, "response_body_schemas", None), "_schemas", ()):
        yield [method, path, action, version(oldest), version(newest), schema]


def rows():
    for path, by_method in routes.ROUTE_LIST:
        if isinstance(by_method, str):
            continue
        for method, (factory, name) in by_method.items():
            controller, actions = factory.args
            if name != "action":
                yield from rows_of(method, path, None, getattr(controller, name, None))
                continue
            for one in (controller, *actions):
                for function in methods(one).values():
                    wanted = getattr(function, "wsgi_action", None)
                    if wanted is not None:
                        yield from rows_of(method, path, wanted, function)


print(json.dumps(list(rows())))
